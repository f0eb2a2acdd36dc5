#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::x_forwarded_for(bytes));
