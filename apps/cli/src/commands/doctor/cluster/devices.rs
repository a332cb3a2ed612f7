//! Workers' devices that take no tasks, unused cards, and chips that are too hot.

use super::{Facts, field};
use crate::output::array;
use lgp_hal::{Finding, Status as FindingStatus};

/// From here on chips slow down.
const HOT_CELSIUS: f64 = 90.0;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for worker in &facts.workers {
        let id = field(worker, "id");
        for device in array(&worker["devices"]) {
            let subject = format!("{} of {id}", field(device, "device"));
            if let Some(why) = device["taken_out"].as_str() {
                let message = format!("takes no tasks: {why}");
                let line = format!("radeon-cluster workers enable {id}");
                all.push(Finding::new(&subject, FindingStatus::Warn, message).fix(line));
            }
            let celsius = device["temperature_c"].as_f64();
            if let Some(celsius) = celsius.filter(|celsius| *celsius >= HOT_CELSIUS) {
                let message = format!("the chip is at {celsius:.0} °C and will slow down");
                all.push(Finding::new(&subject, FindingStatus::Warn, message));
            }
        }
        for card in array(&worker["unused"]) {
            let [card_id, name, reason] = ["id", "name", "reason"].map(|key| field(card, key));
            let subject = format!("{card_id} of {id}");
            let message = format!("{name} is not used: {reason}");
            // Without a hint there is no fault, as for the processor through a driver.
            all.push(match card["hint"].as_str() {
                Some(hint) => Finding::new(subject, FindingStatus::Warn, message).fix(hint),
                None => Finding::new(subject, FindingStatus::Info, message),
            });
        }
    }
    all
}
