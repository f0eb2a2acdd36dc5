#![no_main]

#[path = "../resp.rs"]
mod resp;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| resp::holds(bytes));
