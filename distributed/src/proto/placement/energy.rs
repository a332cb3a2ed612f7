//! The energy that a device has used, as its reports of power add up.

use std::time::Duration;

/// Nothing is counted between reports that are further apart: the power in between is unknown.
const GAP_MAX: Duration = Duration::from_secs(2);

/// The energy of one device since its worker connected.
#[derive(Debug, Default)]
pub(super) struct Energy {
    last: Option<(Duration, f64)>,
    joules: Option<f64>,
}

impl Energy {
    /// Takes a report of power. Between two reports the mean of both counts.
    pub(super) fn read(&mut self, now: Duration, watts: Option<f32>) {
        let watts = watts.map(f64::from).filter(|watts| watts.is_finite() && *watts >= 0.0);
        if let (Some((at, before)), Some(watts)) = (self.last, watts) {
            let time = now.saturating_sub(at);
            if time <= GAP_MAX {
                *self.joules.get_or_insert_default() += (before + watts) / 2.0 * time.as_secs_f64();
            }
        }
        self.last = watts.map(|watts| (now, watts));
    }

    /// The joules that were counted; `None` before there were two reports.
    pub(super) fn joules(&self) -> Option<f64> {
        self.joules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_watched_is_counted() {
        let mut energy = Energy::default();
        let mut read = |ms, watts| {
            energy.read(Duration::from_millis(ms), watts);
            energy.joules()
        };
        assert_eq!(read(0, None), None);
        assert_eq!(read(500, Some(100.0)), None);
        assert_eq!(read(1_000, Some(100.0)), Some(50.0));
        assert_eq!(read(1_500, Some(200.0)), Some(125.0));
        assert_eq!(read(2_000, None), Some(125.0));
        assert_eq!(read(2_500, Some(100.0)), Some(125.0));
        assert_eq!(read(60_000, Some(100.0)), Some(125.0), "nobody watched");
        assert_eq!(read(60_500, Some(f32::NAN)), Some(125.0));
        assert_eq!(read(61_000, Some(-1.0)), Some(125.0));
    }
}
