//! Which way `auto` uses a card, and which ways it leaves out.

use crate::device;
use crate::measure;
use lgp_hal::{Finding, Status as FindingStatus, select_auto_by};
use lgp_sdk::device::{DeviceId, DeviceInfo};

/// The subject of the finding that names the device of `auto`.
const AUTO: &str = "auto";

/// Replaces the finding about `auto`, which knows no measurements, and adds those about ways.
pub(super) fn check(devices: &[DeviceInfo], findings: &mut Vec<Finding>) {
    findings.retain(|finding| finding.subject != AUTO);
    for info in devices {
        if info.ways.iter().filter(|way| way.usable).count() > 1 && info.device.is_some() {
            let mut times = device::way_times(&info.ways);
            // Another finding says why a way is not usable.
            times.retain(|(id, _)| info.ways.iter().any(|way| way.id == *id && way.usable));
            findings.extend(compare(&info.id, &times));
        }
    }
    let auto = select_auto_by(devices, &device::fastest_way);
    findings.push(Finding::new(AUTO, FindingStatus::Ok, format!("models run on {auto}")));
}

/// The findings about the ways to use one device.
fn compare(subject: &str, times: &[(DeviceId, Result<f64, String>)]) -> Vec<Finding> {
    let measured = times.iter().filter_map(|(id, ms)| Some((id, ms.as_ref().ok()?)));
    let measured = measured.map(|(id, ms)| format!("{id} {} ms", measure::shown(*ms)));
    let measured: Vec<String> = measured.collect();
    let failed = times.iter().filter_map(|(id, ms)| Some((id, ms.as_ref().err()?)));
    let failed = failed.map(|(id, reason)| {
        let message = format!("auto leaves this way out: {reason}");
        Finding::new(id.to_string(), FindingStatus::Warn, message)
    });
    let numbers = (!measured.is_empty()).then(|| {
        let message = format!("auto compares its ways: {}", measured.join(", "));
        Finding::new(subject, FindingStatus::Info, message)
    });
    numbers.into_iter().chain(failed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_fails_is_named_with_its_reason() {
        let id = |text: &str| text.parse::<DeviceId>().expect(text);
        let failed = Err("no kernel compiles".to_owned());
        let times = vec![(id("vulkan:0"), Ok(2.5)), (id("opencl:0"), failed)];
        let findings = compare("vulkan:0", &times);
        insta::assert_snapshot!(super::super::text(&findings), @r"
        info  vulkan:0  auto compares its ways: vulkan:0 2.50 ms
        warn  opencl:0  auto leaves this way out: no kernel compiles
        ");
        assert!(compare("vulkan:0", &[]).is_empty());
    }

    #[test]
    fn the_finding_about_auto_is_replaced() {
        let mut findings = vec![
            Finding::new("auto", FindingStatus::Ok, "models run on vulkan:7"),
            Finding::new("cpu", FindingStatus::Ok, "a processor"),
        ];
        check(&[], &mut findings);
        let told: Vec<_> = findings.iter().map(|it| (&*it.subject, &*it.message)).collect();
        assert_eq!(told, [("cpu", "a processor"), ("auto", "models run on cpu")]);
    }
}
