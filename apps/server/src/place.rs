//! Where and for how long a task ran, for answers, refusals and metrics.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use lgp_distributed::{WorkerId, ms};
use lgp_sdk::cluster::TaskRecord;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Names of the worker and of the device in headers and in gRPC metadata.
pub(crate) const WORKER: &str = "lgp-worker";
pub(crate) const DEVICE: &str = "lgp-device";
/// The header with a run's times (W3C's Server Timing).
pub(crate) const TIMES: &str = "server-timing";

/// The longest device name that is used; names come from workers, so they are not trusted.
const DEVICE_BYTES_MAX: usize = 64;

/// A worker, and its device if known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) worker: WorkerId,
    pub(crate) device: Option<Arc<str>>,
}

impl Place {
    /// The place of a task's last attempt.
    pub(crate) fn of(record: &TaskRecord) -> Option<Self> {
        let named = |device: &&Arc<str>| (1..=DEVICE_BYTES_MAX).contains(&device.len());
        let device = record.device.as_ref().filter(named).cloned();
        Some(Self { worker: record.worker.clone()?, device })
    }

    /// The place that stands for all places beyond the counted ones.
    pub(crate) fn other() -> Option<Self> {
        Some(Self { worker: "other".parse().ok()?, device: None })
    }

    /// Each known part, with its name.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let device = self.device.as_deref().map(|device| (DEVICE, device));
        std::iter::once((WORKER, self.worker.as_str())).chain(device)
    }

    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in self.parts() {
            // Values that are invalid in headers are left out.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

/// A model's run that gave an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) place: Place,
    /// Time waiting for a device.
    pub(crate) queue: Duration,
    /// Time in the model, as the worker measured it; for a batch, that of the whole batch.
    pub(crate) model: Duration,
}

impl Ran {
    /// Each time, with its name.
    pub(crate) fn times(&self) -> [(&'static str, Duration); 2] {
        [("queue", self.queue), ("model", self.model)]
    }

    /// Adds the place, and the times in milliseconds.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        self.place.add_to(headers);
        let times = self.times().map(|(name, time)| {
            let ms = ms(time);
            format!("{name};dur={ms:.3}")
        });
        if let Ok(value) = HeaderValue::from_str(&times.join(", ")) {
            headers.insert(HeaderName::from_static(TIMES), value);
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.worker)?;
        self.device.as_ref().map_or(Ok(()), |device| write!(f, ", device {device}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_header_can_hold_is_left_out() {
        let place = |device: &str| Place {
            worker: "w1".parse().expect("a name"),
            device: Some(device.into()),
        };
        for (device, expected) in [("opencl:0", Some("opencl:0")), ("a\nb", None)] {
            let mut headers = HeaderMap::new();
            place(device).add_to(&mut headers);
            let found = headers.get(DEVICE).map(|value| value.to_str().expect("text"));
            assert_eq!((&headers[WORKER], found), (&HeaderValue::from_static("w1"), expected));
        }
    }
}
