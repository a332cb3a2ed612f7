//! Bytes as a file of weights: its list is read, and then every tensor.
#![no_main]

use lgp_inference::Weights;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lgp_fuzz::bounded(data, 16 << 20, 512, |data| {
        if let Ok(weights) = Weights::from_bytes(data.to_vec()) {
            for name in weights.names() {
                drop(weights.get(name));
            }
        }
    });
});
