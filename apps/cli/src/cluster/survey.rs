//! Reports to the coordinator why a machine's other devices are not used, once a worker works. A separate process
//! probes them, so that a crashing driver does not end the worker, and its libraries do not stay in memory.

use crate::device;
use lgp_distributed::UnusedDevice;
use lgp_sdk::cluster::MultiExecutor;
use lgp_sdk::device::DeviceId;
use serde::Deserialize;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A new worker's first tasks come before the survey.
const AFTER: Duration = Duration::from_secs(2);

/// The parts of the survey's output that are used here.
#[derive(Deserialize)]
struct Survey {
    devices: Vec<Seen>,
}

#[derive(Deserialize)]
struct Seen {
    id: String,
    name: String,
    usable: bool,
    reason: Option<String>,
    hint: Option<String>,
    caps: Caps,
    #[serde(default)]
    ways: Vec<Way>,
}

#[derive(Deserialize)]
struct Way {
    id: DeviceId,
}

#[derive(Deserialize)]
struct Caps {
    kind: String,
}

/// Probes the machine's devices after a while, and tells `executor` which are not used.
pub(crate) fn begin(executor: &Arc<MultiExecutor>, used: Vec<DeviceId>) {
    let executor = Arc::clone(executor);
    let thread = std::thread::Builder::new().name("survey".to_owned());
    let spawned = thread.spawn(move || {
        std::thread::sleep(AFTER);
        match look() {
            Ok(survey) => executor.set_unused(unused(survey, &used)),
            Err(error) => tracing::warn!(%error, "the machine's other devices are not known"),
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "the machine's other devices are not known");
    }
}

/// The output of `radeon-cluster devices`. A self-test has its own time limit for a driver that hangs.
fn look() -> std::io::Result<Survey> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["devices", "--json"]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output()?;
    serde_json::from_slice(&output.stdout).map_err(std::io::Error::from)
}

fn unused(survey: Survey, used: &[DeviceId]) -> Vec<UnusedDevice> {
    let others = survey.devices.into_iter();
    let others = others.filter(|seen| {
        let by_id = seen.id.parse().is_ok_and(|id| used.contains(&id));
        !by_id && !seen.ways.iter().any(|way| used.contains(&way.id))
    });
    let told = others.map(|Seen { id, name, usable, reason, hint, caps, .. }| {
        let is_cpu = caps.kind == "cpu";
        let hint = match (&hint, usable && !is_cpu) {
            (None, true) => Some(format!("start or join with --device {id}")),
            _ => hint,
        };
        let is_main = id == DeviceId::CPU.to_string();
        let reason = match (&reason, is_cpu && is_main) {
            (None, true) => "works; this worker computes on another device".to_owned(),
            _ => device::why_not(reason, usable, is_cpu && !is_main, used.first().copied()),
        };
        UnusedDevice { id, name, reason, hint }
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(id: &str, kind: &str, reason: Option<&str>, hint: Option<&str>) -> serde_json::Value {
        json!({
            "id": id, "name": "a device", "usable": reason.is_none(), "reason": reason, "hint": hint,
            "caps": { "kind": kind },
        })
    }

    #[test]
    fn what_is_not_used_says_why_and_what_to_set() {
        let devices = [
            seen("cpu", "cpu", None, None),
            seen("opencl:0", "gpu", None, None),
            seen("opencl:1", "cpu", None, None),
            seen(
                "pci:0000:01:00.0",
                "gpu",
                Some("rusticl is off"),
                Some("export RUSTICL_ENABLE=radeonsi"),
            ),
        ];
        let survey = || serde_json::from_value(json!({ "devices": devices })).expect("a survey");
        let told = unused(survey(), &[DeviceId::CPU]);
        let [gpu, seen, card] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(gpu.hint.as_deref(), Some("start or join with --device opencl:0"));
        assert!(gpu.reason.contains("cpu"), "{gpu:?}");
        assert!(seen.reason.contains("processor") && seen.hint.is_none(), "{seen:?}");
        assert_eq!(card.reason, "rusticl is off");
        assert_eq!(card.hint.as_deref(), Some("export RUSTICL_ENABLE=radeonsi"));
        let told = unused(survey(), &["opencl:0".parse().expect("an id")]);
        assert_eq!(told[0].id, "cpu");
        assert!(told[0].reason.contains("another device"), "{told:?}");
    }
}
