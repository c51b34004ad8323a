#![no_main]

#[path = "../properties.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|input: (&str, &str)| properties::key(input.0, input.1));
