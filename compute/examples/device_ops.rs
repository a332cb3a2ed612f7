//! Operators on a device against the CPU: `device_ops opencl:0 [small]` prints a line for each.
//! `small` leaves out operators that take too long on an emulator.

#[path = "../tests/device/cases/mod.rs"]
mod cases;

use lgp_compute::device::Accelerator;
use lgp_hal::DeviceId;
use lgp_memory::SegmentLimits;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let id = arguments.next().unwrap_or_else(|| "opencl:0".to_owned());
    let small = arguments.next().is_some_and(|filter| filter == "small");
    let opened =
        id.parse::<DeviceId>().and_then(lgp_hal::open).map_err(|error| error.to_string()).and_then(
            |device| {
                // Each tensor is a buffer of its own, so that an emulator notices accesses beyond a
                // tensor.
                let limits = SegmentLimits::of_device(device.caps(), 1 << 30);
                let segment_bytes = limits.alignment_bytes;
                let limits = SegmentLimits { segment_bytes, idle_bytes_max: 0, ..limits };
                Accelerator::with_limits(device, limits).map_err(|error| error.to_string())
            },
        );
    let accelerator = match opened {
        Ok(accelerator) => accelerator,
        Err(reason) => {
            println!("skipped: {id}: {reason}");
            return ExitCode::SUCCESS;
        }
    };
    let mut failed = false;
    for case in cases::all().iter().filter(|case| !small || case.is_small()) {
        match case.check(&accelerator) {
            Ok(()) => println!("ok {}", case.name),
            Err(why) => {
                failed = true;
                println!("FAILED {}: {why}", case.name);
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
