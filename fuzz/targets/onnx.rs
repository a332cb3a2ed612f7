//! Bytes as an ONNX model: read, and compiled into a session as far as they let. Nothing is run.
#![no_main]

use lgp_inference::{Model, Session, SessionOptions};

/// Folding constants has a budget of 64 MiB and four times the weights; an operator that is folded
/// may need as much again while it works.
const FIXED: usize = 256 << 20;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lgp_fuzz::bounded(data, FIXED, 4096, |data| {
        if let Ok(model) = Model::from_bytes(data, None) {
            drop(Session::new(&model, SessionOptions::with_threads(1)));
        }
    });
});
