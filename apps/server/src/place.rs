//! Where a task ran, and for how long, as answers, refusals and metrics say it.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use lgp_sdk::{TaskRecord, WorkerId, ms};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Names of the worker and of the device in headers and in a call's metadata.
pub(crate) const WORKER: &str = "lgp-worker";
pub(crate) const DEVICE: &str = "lgp-device";
/// Name of the header with a run's times, of W3C's Server Timing.
pub(crate) const TIMES: &str = "server-timing";

/// A worker says what its devices are called: a name longer than this is no name.
const DEVICE_BYTES_MAX: usize = 64;

/// A worker and, where it is known, its device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) worker: WorkerId,
    pub(crate) device: Option<Arc<str>>,
}

impl Place {
    /// Where the last attempt at a task ran.
    pub(crate) fn of(record: &TaskRecord) -> Option<Self> {
        let named = |device: &&Arc<str>| (1..=DEVICE_BYTES_MAX).contains(&device.len());
        let device = record.device.as_ref().filter(named).cloned();
        Some(Self { worker: record.worker.clone()?, device })
    }

    /// All those that are too many to be counted one by one.
    pub(crate) fn other() -> Option<Self> {
        Some(Self { worker: "other".parse().ok()?, device: None })
    }

    /// Each part that is known, under its name.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let device = self.device.as_deref().map(|device| (DEVICE, device));
        std::iter::once((WORKER, self.worker.as_str())).chain(device)
    }

    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in self.parts() {
            // What no header can hold is left out.
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
    /// Waiting for a device.
    pub(crate) queue: Duration,
    /// In the model, as the worker measured it; of a batch, the whole batch's.
    pub(crate) model: Duration,
}

impl Ran {
    /// Each time under its name.
    pub(crate) fn times(&self) -> [(&'static str, Duration); 2] {
        [("queue", self.queue), ("model", self.model)]
    }

    /// The place, and the times in milliseconds.
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
