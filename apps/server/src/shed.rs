//! Limits the log lines of overload refusals, of which there may be thousands a second: one line a second, with the
//! count of those left out.

use crate::faults::NOT_READY;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whether this code means overload: no room, or no ready model.
pub(crate) fn is_told_seldom(code: Option<&str>) -> bool {
    code.is_some_and(|code| ["backlog", "busy", "overloaded", NOT_READY].contains(&code))
}

/// The least time between two lines.
const PAUSE: Duration = Duration::from_secs(1);

/// Recent refusals.
#[derive(Debug, Default)]
pub(crate) struct Shed(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    untold: u64,
}

impl Shed {
    /// Counts a refusal; if it is to be logged, returns how many before it were not.
    pub(crate) fn tell(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE) {
            told.untold += 1;
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_told_with_the_number_of_the_others() {
        let (shed, began) = (Shed::default(), Instant::now());
        let at = |ms| shed.tell(began + Duration::from_millis(ms));
        let told = [0, 1, 500, 999, 1000, 1001, 5000].map(at);
        assert_eq!(told, [Some(0), None, None, None, Some(3), None, Some(1)]);
    }
}
