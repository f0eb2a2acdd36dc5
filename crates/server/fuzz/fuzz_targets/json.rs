#![no_main]

#[path = "../json.rs"]
mod json;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| json::body(bytes));
