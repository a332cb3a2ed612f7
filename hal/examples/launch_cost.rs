//! What launches and submissions cost the host: `launch_cost vulkan:0 opencl:0` prints medians for each device. Each
//! launch depends on the one before.

use lgp_hal::{Arg, Buffer, Device, Launch, Result};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOURCE: &str = "KERNEL GROUP_SIZE(64, 1, 1) void sum(GLOBAL float *to, GLOBAL const float *a,
    GLOBAL const float *b, u32 n, u32 k, u32 l, u32 m, float f, float g, float h, float j) {
    u32 i = GLOBAL_ID(0);
    if (i < n + k + l + m) { to[i] = a[i] * f + b[i] * g + h + j; }
}";
const ITEMS: usize = 64;
const ROUNDS: usize = 200;
/// Rounds before those that are measured.
const WARM: usize = 20;

fn main() -> ExitCode {
    for name in std::env::args().skip(1) {
        let opened = name
            .parse()
            .map_err(|error| format!("{error}"))
            .and_then(|id| lgp_hal::open(id).map_err(|error| error.to_string()));
        let measured = opened.and_then(|device| {
            [10, 100].into_iter().try_for_each(|launches| {
                let [launch, submission] =
                    measure(&*device, launches).map_err(|error| error.to_string())?;
                println!("{name}: {launches} launches a submission: {launch:?} each, {submission:?} for it");
                Ok(())
            })
        });
        if let Err(error) = measured {
            eprintln!("{name}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The medians of a launch, and of a submission of so many.
fn measure(device: &dyn Device, launches: u32) -> Result<[Duration; 2]> {
    let program = device.compile(SOURCE, "")?;
    let buffers: Vec<Arc<dyn Buffer>> =
        (0..16).map(|_| device.allocate(4 * ITEMS)).collect::<Result<_>>()?;
    let mut queue = device.queue()?;
    let (mut recorded, mut submitted) = (Vec::new(), Vec::new());
    for round in 0..WARM + ROUNDS {
        let begun = Instant::now();
        for at in 0..launches as usize {
            let [to, a, b] = [at, at + 15, at + 7].map(|at| Arg::Buffer(&*buffers[at % 16]));
            let (n, f) = (Arg::U32(16), Arg::F32(0.5));
            let args = [to, a, b, n, n, n, n, f, f, f, f];
            let (global, local) = ([ITEMS, 1, 1], Some([ITEMS, 1, 1]));
            let launch = Launch { program: &*program, kernel: "sum", global, local, args: &args };
            // SAFETY: an element of each buffer per work-item, of which each has as many.
            unsafe { queue.launch(&launch) }?;
        }
        let middle = Instant::now();
        queue.submit()?;
        let end = Instant::now();
        queue.finish()?;
        if round >= WARM {
            recorded.push((middle - begun) / launches);
            submitted.push(end - middle);
        }
    }
    Ok([recorded, submitted].map(|mut all| {
        all.sort();
        all[ROUNDS / 2]
    }))
}
