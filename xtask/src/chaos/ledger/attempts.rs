//! Counts a task's attempts. Each coordinator counts from zero, so the attempts of an earlier one
//! are added if a later one reports the task as open.

/// Attempts that were seen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Attempts {
    /// Attempts in earlier lives of the coordinator.
    earlier: u64,
    /// The last life that reported, and its count.
    life: u64,
    now: u64,
}

impl Attempts {
    /// Notes that the task was open.
    pub(super) fn seen(&mut self, life: u64, attempts: u64) {
        if life != self.life {
            self.earlier += self.now;
            (self.life, self.now) = (life, 0);
        }
        self.now = self.now.max(attempts);
    }

    /// The total of attempts, where the life that saw the end counts `attempts`. An end seen by the
    /// next life may belong to the previous one.
    pub(super) fn ended(&mut self, attempts: u64) -> u64 {
        self.now = self.now.max(attempts);
        self.earlier + self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_lives_that_left_a_task_open_are_added() {
        let mut task = Attempts::default();
        task.seen(1, 1);
        task.seen(1, 2);
        assert_eq!(task.ended(2), 2);
        // The end may belong to the first life.
        assert_eq!(task.ended(2), 2);
        task.seen(2, 0);
        assert_eq!(task.ended(1), 3);
        task.seen(5, 1);
        task.seen(7, 0);
        assert_eq!(task.ended(1), 5);
    }
}
