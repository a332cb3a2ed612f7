//! How often a task was begun. A coordinator counts from nothing, so what an earlier one has begun
//! is added, where a later one said that the task had not ended.

/// Attempts that were seen.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Attempts {
    /// Those of earlier lives of the coordinator.
    earlier: u64,
    /// The life that was last asked, and what it said.
    life: u64,
    now: u64,
}

impl Attempts {
    /// The task had not ended then.
    pub(super) fn seen(&mut self, life: u64, attempts: u64) {
        if life != self.life {
            self.earlier += self.now;
            (self.life, self.now) = (life, 0);
        }
        self.now = self.now.max(attempts);
    }

    /// The task had ended then, with so many attempts in the life that saw its end: all of them, as
    /// far as they are known. An end that is seen by the next life may be of the one before.
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
        // The end may have been the first life's own.
        assert_eq!(task.ended(2), 2);
        task.seen(2, 0);
        assert_eq!(task.ended(1), 3);
        task.seen(5, 1);
        task.seen(7, 0);
        assert_eq!(task.ended(1), 5);
    }
}
