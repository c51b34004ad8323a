//! Any bytes as a store's answer: understood or refused, and never a panic.

#![no_main]

use idempotent_sqs::stores::decode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &[u8]| decode(answer));
