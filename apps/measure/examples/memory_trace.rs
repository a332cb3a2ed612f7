//! Traces of the allocator of device memory, by `lgp_measure::trace_memory`: a JSON object each.
//! `cargo xtask bench memory` runs it; an argument is the number of seeds.

use lgp_measure::{Freed, trace_memory};

const STEPS: usize = 400_000;

fn main() -> Result<(), lgp_memory::Error> {
    let seeds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    for freed in Freed::ALL {
        for segment_bytes in [8 << 30, 2 << 30] {
            for occupancy in [90, 95] {
                for seed in 0..seeds {
                    let trace = trace_memory(freed, segment_bytes, occupancy, STEPS, seed)?;
                    println!("{}", serde_json::to_string(&trace).unwrap_or_default());
                }
            }
        }
    }
    Ok(())
}
