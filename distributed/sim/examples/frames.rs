//! Measures the bytes of the frames around a task with 64 bytes of input, and the time to encode
//! and decode them. Prints one JSON value.
//!
//! ```text
//! cargo run --release -p lgp-distributed-sim --example frames
//! ```

use lgp_distributed::{ModelRef, TaskSpec};
use lgp_distributed_sim::Envelope;
use lgp_memory::{DType, NamedTensor, Tensor};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> Result<()> {
    let model = ModelRef { name: "noop".into(), version: 1, sha256: String::new() };
    let input = NamedTensor::new("x", Tensor::zeros(DType::F32, [16])?);
    let envelope = Envelope::new(TaskSpec::new(model, vec![input]));
    let (task, answer) = (envelope.task()?, envelope.answer()?);
    let frames = serde_json::json!({
        "task_bytes": task.len(),
        "answer_bytes": answer.len(),
        "encode_ns": nanoseconds(|| Ok(envelope.task()?.len() + envelope.answer()?.len()))?,
        "decode_ns": nanoseconds(|| {
            let tensors = envelope.read_task(black_box(&task))?;
            Ok(tensors + usize::from(envelope.read_answer(black_box(&answer))?))
        })?,
    });
    println!("{frames}");
    Ok(())
}

/// The shortest time of a call over many batches, in nanoseconds.
fn nanoseconds(mut call: impl FnMut() -> Result<usize>) -> Result<f64> {
    const CALLS: u32 = 1000;
    let mut least = f64::INFINITY;
    for _ in 0..100 {
        let began = Instant::now();
        for _ in 0..CALLS {
            black_box(call()?);
        }
        least = least.min(began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
    }
    Ok(least)
}
