//! `--device`: which device runs models, and why the others do not.

use crate::failure::{Failure, Result};
use lgp_sdk::{DeviceError, DeviceId, DeviceInfo, ModelExecutor, ProbeOptions};
use serde::Serialize;

/// A device that was found and is not used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NotUsed {
    pub(crate) id: String,
    pub(crate) reason: String,
}

/// Resolves `auto`, `cpu`, `opencl:0` … to a device that opens, passes its self-test and runs
/// models.
///
/// # Errors
/// `device_unknown` for a text that names no device, `device_not_compiled`, `device_missing`,
/// `device_broken`, and `device_without_models`.
pub(crate) fn resolve(text: &str) -> Result<DeviceId> {
    if text == "auto" {
        // Only the CPU runs models for now, so there is nothing to choose from.
        return Ok(DeviceId::CPU);
    }
    let id: DeviceId = text.parse().map_err(|error: DeviceError| {
        Failure { exit: 2, ..Failure::from_error("device_unknown", &error) }
            .hint("radeon-cluster devices lists the devices of this machine")
    })?;
    lgp_sdk::open(id).map_err(|error| cannot_open(id, &error))?;
    if !ModelExecutor::runs_on(id.backend) {
        let message = format!("device {id} works, but models do not run on {} yet", id.backend);
        return Err(Failure::new("device_without_models", message)
            .hint("use --device cpu, or auto to take the best device that runs models"));
    }
    Ok(id)
}

fn cannot_open(id: DeviceId, error: &DeviceError) -> Failure {
    match error {
        DeviceError::BackendNotCompiled { feature, .. } => {
            Failure::from_error("device_not_compiled", error)
                .hint(format!("build with --features {feature}, or use --device auto"))
        }
        DeviceError::NoDevice { .. } => Failure::from_error("device_missing", error)
            .hint("radeon-cluster doctor says what is missing; --device auto always works"),
        _ => Failure::from_error("device_broken", error)
            .hint(format!("radeon-cluster doctor checks {id}; --device auto always works")),
    }
}

/// Every device of this machine other than `used`, with the reason.
pub(crate) fn not_used(used: DeviceId) -> Vec<NotUsed> {
    let reason = |device: &DeviceInfo| match (&device.reason, device.usable) {
        (Some(reason), _) => reason.clone(),
        (None, true) => "works, but models do not run on it yet".to_owned(),
        (None, false) => "not usable".to_owned(),
    };
    lgp_sdk::probe(&ProbeOptions::default())
        .iter()
        .filter(|device| device.device != Some(used))
        .map(|device| NotUsed { id: device.id.clone(), reason: reason(device) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::BackendKind;

    #[test]
    fn each_reason_has_its_code() {
        let id = DeviceId { backend: BackendKind::Cuda, ordinal: 0 };
        let not_compiled =
            DeviceError::BackendNotCompiled { backend: BackendKind::Cuda, feature: "cuda" };
        let missing = DeviceError::NoDevice { device: id, reason: "no driver".to_owned() };
        let broken =
            DeviceError::SelfTest { device: id, op: "add", detail: "1 + 1 = 3".to_owned() };
        for (error, code, part) in [
            (not_compiled, "device_not_compiled", "cuda"),
            (missing, "device_missing", "no driver"),
            (broken, "device_broken", "1 + 1 = 3"),
        ] {
            let failure = cannot_open(id, &error);
            assert_eq!((failure.code.as_ref(), failure.exit), (code, 1));
            assert!(failure.message.contains(part), "{:?}", failure.message);
            assert!(failure.hint.is_some());
        }
    }

    #[test]
    fn auto_and_cpu_are_the_processor() {
        for text in ["auto", "cpu", "cpu:0"] {
            assert_eq!(resolve(text).expect("every machine has one"), DeviceId::CPU);
        }
        let failure = resolve("gpu").expect_err("no such backend");
        assert_eq!((failure.code.as_ref(), failure.exit), ("device_unknown", 2));
    }
}
