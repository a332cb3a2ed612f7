//! How many commands a submission may hold. A driver ends a submission that runs for some seconds,
//! and the device with it.

use std::time::Duration;

/// A submission that takes longer is a long one: a tenth of the time after which drivers lose
/// patience.
const LONG: Duration = Duration::from_secs(1);
/// A full submission that takes less may be twice as large and is still no long one.
const SHORT: Duration = Duration::from_millis(250);
/// The first bound, low enough for kernels of 30 ms each.
const START: u32 = 32;
/// The highest bound; a submission costs so little that larger ones gain nothing.
const MOST: u32 = 128;

/// The bound of a queue's submissions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    commands_max: u32,
}

impl Pace {
    /// The bound before anything was measured.
    pub(super) fn new() -> Self {
        Self { commands_max: START }
    }

    /// The number of commands at which a submission is full.
    pub(super) fn commands_max(self) -> u32 {
        self.commands_max
    }

    /// Learns the device's time of a submission of so many commands.
    pub(super) fn observe(&mut self, commands: u32, took: Duration) {
        if took > LONG {
            self.commands_max = (commands.min(self.commands_max) / 2).max(1);
        } else if took < SHORT && commands >= self.commands_max {
            self.commands_max = (2 * self.commands_max).min(MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_submissions_shrink_and_short_full_ones_grow() {
        let mut pace = Pace::new();
        for (commands, ms, expected) in [
            (32, 500, 32),
            (5, 10, 32),
            (32, 10, 64),
            (64, 10, 128),
            (128, 10, 128),
            (128, 1001, 64),
            // The next long one had fewer commands than allowed.
            (10, 5000, 5),
            (5, 5000, 2),
            (2, 5000, 1),
            (1, 5000, 1),
            (1, 249, 2),
            (2, 251, 2),
        ] {
            pace.observe(commands, Duration::from_millis(ms));
            assert_eq!(pace.commands_max(), expected, "{commands} commands took {ms} ms");
        }
    }
}
