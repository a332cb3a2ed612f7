//! Bytes as the body of an inference request, and of a task, over HTTP.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lgp_fuzz::bounded(data, 1 << 20, 256, |data| {
        let _ = lgp_server::untrusted::http(data);
    });
});
