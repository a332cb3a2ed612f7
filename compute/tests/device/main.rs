//! Every operator that has kernels, on a device and on the CPU.

mod cases;

use lgp_compute::device::Accelerator;
use lgp_hal::DeviceId;

fn device() -> Result<Accelerator, String> {
    let id: DeviceId = "opencl:0".parse().map_err(|error| format!("{error}"))?;
    let device = lgp_hal::open(id).map_err(|error| error.to_string())?;
    Accelerator::new(device).map_err(|error| error.to_string())
}

#[test]
fn operators_agree_with_the_cpu() {
    let accelerator = match device() {
        Ok(accelerator) => accelerator,
        Err(reason) => return println!("skipped: opencl: {reason}"),
    };
    let failures: Vec<String> = cases::all()
        .iter()
        .filter_map(|case| {
            case.check(&accelerator).err().map(|why| format!("{}: {why}", case.name))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
