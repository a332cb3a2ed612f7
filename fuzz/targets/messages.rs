//! Bytes as what peers, joiners and journals bring: frames of every kind with their tensors,
//! requests, records of durable tasks, tokens and names.
#![no_main]

use lgp_distributed_sim::Untrusted;
use std::sync::LazyLock;

static READERS: LazyLock<Untrusted> =
    LazyLock::new(|| Untrusted::new().expect("the system has random numbers"));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let readers = &*READERS;
    lgp_fuzz::bounded(data, 4 << 20, 256, |data| {
        let _ = readers.read(data);
    });
});
