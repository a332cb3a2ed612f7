//! Measures briefly whether a device is faster than the processor.

use crate::device;
use crate::failure::{Failure, Result};
use crate::measure::{self, Runs};
use lgp_hal::{DeviceKind, Finding, Status as FindingStatus};
use lgp_measure::{Trial, TrialSize, trials};
use lgp_sdk::device::{DeviceId, DeviceInfo};
use lgp_sdk::model::SessionOptions;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The measured networks: a product of matrices and a convolution.
const KINDS: [&str; 2] = ["gemm", "conv3x3"];
const NAMES: [&str; 2] = ["gemm-512", "conv3x3-64x56"];

/// The time limit of all measurements, with slow compilers in mind.
const LIMIT: Duration = Duration::from_secs(5);
/// How long one network is measured on one device, after the first run.
const EACH: Duration = Duration::from_millis(300);

/// The median times of the networks, in milliseconds.
type Times = Vec<f64>;

/// Compares each usable device with the processor.
pub(super) fn check(devices: &[DeviceInfo]) -> Vec<Finding> {
    let usable = devices.iter().filter(|info| info.usable);
    let others: Vec<(DeviceId, DeviceKind)> = usable
        .filter_map(|info| Some((info.device.filter(|id| *id != DeviceId::CPU)?, info.caps.kind)))
        .collect();
    if others.is_empty() {
        return Vec::new();
    }
    let start = Instant::now();
    let (sender, times) = mpsc::channel();
    let ids: Vec<DeviceId> = others.iter().map(|(id, _)| *id).collect();
    // A driver may take forever over a kernel; the thread ends with the process (`lgp_hal::exit`).
    let spawned = std::thread::Builder::new().name("speed".to_owned()).spawn(move || {
        for id in [DeviceId::CPU].into_iter().chain(ids) {
            if sender.send(times_of(id)).is_err() {
                return;
            }
        }
    });
    let next = || match spawned {
        Ok(_) => times.recv_timeout(LIMIT.saturating_sub(start.elapsed())).unwrap_or_else(|_| {
            let message = format!("not measured within {} s", LIMIT.as_secs());
            Err(Failure::new("slow", message))
        }),
        Err(ref error) => Err(Failure::internal(error)),
    };
    let processor = next();
    let finding = |(id, kind): &(DeviceId, DeviceKind)| {
        let times = next();
        compare(*id, *kind, &times, &processor)
    };
    others.iter().map(finding).collect()
}

fn times_of(id: DeviceId) -> Result<Times> {
    let accelerator = device::resolve(&id.to_string())?;
    let all = trials(TrialSize::Full, &KINDS)?;
    let wanted = all.iter().filter(|trial| NAMES.contains(&trial.name.as_str()));
    let time = |trial: &Trial| {
        let session = trial.session(SessionOptions::default(), accelerator.clone())?;
        trial.run(&session)?;
        let runs = Runs::time(EACH, 20, || trial.run(&session).map(drop))?;
        Ok(runs.median_ms)
    };
    wanted.map(time).collect()
}

/// The finding from the times of a device and of the processor.
fn compare(id: DeviceId, kind: DeviceKind, times: &Result<Times>, own: &Result<Times>) -> Finding {
    let subject = id.to_string();
    let (times, own) = match (times, own) {
        (Ok(times), Ok(own)) => (times, own),
        (Err(failure), _) | (_, Err(failure)) => {
            let message = format!("its speed: {}", failure.message);
            return Finding::new(subject, FindingStatus::Info, message);
        }
    };
    let pairs = NAMES.iter().zip(times).zip(own);
    let pairs = pairs.map(|((name, time), own)| {
        format!("{name} {} ms ({} ms)", measure::shown(*time), measure::shown(*own))
    });
    let numbers = pairs.collect::<Vec<_>>().join(", ");
    let slower = times.iter().zip(own).filter(|(time, own)| time > own).count();
    let said = |status, what: &str| {
        Finding::new(&subject, status, format!("{what}: {numbers}, the processor in brackets"))
    };
    match (slower, kind) {
        (0, _) => said(FindingStatus::Ok, "faster than the processor"),
        // Information only: `auto` does not choose it.
        (_, DeviceKind::Cpu) => {
            said(FindingStatus::Info, "the processor through a driver, slower than directly")
        }
        (slower, _) if slower == NAMES.len() => {
            let finding = said(FindingStatus::Warn, "slower than the processor");
            finding.fix("run models with --device cpu, which frees the card, or compare your own with radeon-cluster bench")
        }
        _ => said(FindingStatus::Info, "slower than the processor at one of two"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_hal::BackendKind;

    #[test]
    fn a_slow_card_is_a_warning_with_numbers() {
        let id = DeviceId::new(BackendKind::OpenCl, 0);
        let own = Ok(vec![10.0, 20.0]);
        for (times, kind, status, part) in [
            (Ok(vec![1.0, 2.0]), DeviceKind::Gpu, FindingStatus::Ok, "gemm-512 1.00 ms (10.0 ms)"),
            (
                Ok(vec![11.0, 21.0]),
                DeviceKind::Gpu,
                FindingStatus::Warn,
                "slower than the processor:",
            ),
            (Ok(vec![1.0, 21.0]), DeviceKind::Gpu, FindingStatus::Info, "at one of two"),
            (Ok(vec![11.0, 21.0]), DeviceKind::Cpu, FindingStatus::Info, "through a driver"),
            (
                Err(Failure::new("slow", "not measured within 5 s")),
                DeviceKind::Gpu,
                FindingStatus::Info,
                "not measured within 5 s",
            ),
        ] {
            let finding = compare(id, kind, &times, &own);
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.message.contains(part), "{finding:?}");
            assert_eq!(finding.fix.is_some(), status == FindingStatus::Warn);
        }
    }

    #[test]
    fn the_measured_networks_exist() {
        let all = trials(TrialSize::Full, &KINDS).expect("they are built");
        for name in NAMES {
            assert!(all.iter().any(|trial| trial.name == name), "{name}");
        }
    }

    #[test]
    fn a_machine_with_a_processor_alone_is_not_measured() {
        assert_eq!(check(&[]), []);
    }
}
