//! Refusals for want of room come by the thousand a second: one a second has a line in the log, with the
//! number of those that have none.

use crate::catalog::NOT_READY;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whether refusals with a code are of these: there is no room, or no ready model.
pub(crate) fn is_told_seldom(code: Option<&str>) -> bool {
    code.is_some_and(|code| ["backlog", "busy", "overloaded", NOT_READY].contains(&code))
}

/// From one line to the next, at least.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known of refusals of late.
#[derive(Debug, Default)]
pub(crate) struct Shed(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    untold: u64,
}

impl Shed {
    /// Counts a refusal; where it is to have a line, how many before it had none.
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
