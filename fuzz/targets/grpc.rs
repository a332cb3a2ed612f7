//! Bytes as the message of an inference request over gRPC.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lgp_fuzz::bounded(data, 1 << 20, 256, |data| {
        let _ = lgp_server::untrusted::grpc(data);
    });
});
