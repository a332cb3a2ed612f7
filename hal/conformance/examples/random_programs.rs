//! Random programs on a device against their meaning in C: `random_programs vulkan:0 10000 [FIRST]` tries so many, from
//! the seed FIRST on, and ends at the first that differs.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (device, count, first) = match arguments.as_slice() {
        [device, count] => (device, count.parse::<u64>(), Ok(0)),
        [device, count, first] => (device, count.parse(), first.parse()),
        _ => return usage("two or three arguments are expected"),
    };
    let (Ok(id), Ok(count), Ok(first)) = (device.parse(), count, first) else {
        return usage("the device, the count or the first seed is none");
    };
    let device = match lgp_hal::open(id) {
        Ok(device) => device,
        Err(error) => return usage(&error.to_string()),
    };
    let (name, driver) = (device.name(), &device.caps().driver);
    let begun = std::time::Instant::now();
    let last = first + count;
    match lgp_hal_conformance::random_programs(&*device, first..last) {
        Ok(()) => {
            let seconds = begun.elapsed().as_secs();
            println!("{id}, {name}, {driver}: programs {first} to {last} agree, {seconds} s");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("{id}, {name}, {driver}: {what}");
            ExitCode::FAILURE
        }
    }
}

fn usage(complaint: &str) -> ExitCode {
    eprintln!("{complaint}\nusage: random_programs DEVICE COUNT [FIRST]");
    ExitCode::from(2)
}
