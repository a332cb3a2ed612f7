//! Bytes as the source of kernels in the portable language: compiled, as far as they let.
#![no_main]

/// Tokens, statements and expressions have bounds, whatever macros, calls and loops make of a source.
const FIXED: usize = 512 << 20;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lgp_fuzz::bounded(data, FIXED, 4096, |data| {
        if let Ok(source) = std::str::from_utf8(data) {
            drop(lgp_portable::compile(source, ""));
        }
    });
});
