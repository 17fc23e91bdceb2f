//! The target `answers` of fuzz/targets/src/lib.rs.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uniprof_fuzz_targets::run("answers", bytes));
