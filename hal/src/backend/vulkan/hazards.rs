//! Which commands of a recording must see the effects of earlier ones: the pure part.

/// A command's access to a range of one of the driver's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    /// The driver's handle.
    pub(super) buffer: u64,
    /// The first byte.
    pub(super) start: u64,
    /// The first byte after the range.
    pub(super) end: u64,
    /// Whether the command may write there.
    pub(super) writes: bool,
}

impl Access {
    /// Whether both reach a common byte, and one of them writes.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        self.buffer == other.buffer
            && self.start < other.end
            && other.start < self.end
            && (self.writes || other.writes)
    }
}

/// The accesses of a recording.
#[derive(Debug, Default)]
pub(super) struct Hazards {
    all: Vec<Access>,
    /// The number of accesses before the last barrier.
    settled: usize,
}

impl Hazards {
    /// Adds the accesses of the next command; returns whether a barrier must come before it.
    pub(super) fn admit(&mut self, accesses: &[Access]) -> bool {
        let open = &self.all[self.settled..];
        let needs = accesses.iter().any(|access| open.iter().any(|it| it.conflicts(access)));
        if needs {
            self.settled = self.all.len();
        }
        self.all.extend_from_slice(accesses);
        needs
    }

    /// Every access, for [`touches`].
    pub(super) fn all(&self) -> &[Access] {
        &self.all
    }

    /// Forgets every access, for another recording.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.settled = 0;
    }
}

/// Whether one of the accesses conflicts with `access`.
pub(super) fn touches(all: &[Access], access: &Access) -> bool {
    all.iter().any(|it| it.conflicts(access))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(buffer: u64, start: u64, end: u64, writes: bool) -> Access {
        Access { buffer, start, end, writes }
    }

    #[test]
    fn conflicts_need_a_common_byte_and_a_write() {
        let read = access(1, 10, 20, false);
        for (other, expected) in [
            (access(1, 19, 30, true), true),
            (access(1, 0, 11, true), true),
            (access(1, 12, 13, true), true),
            (access(1, 20, 30, true), false),
            (access(1, 0, 10, true), false),
            (access(2, 10, 20, true), false),
            (access(1, 10, 20, false), false),
        ] {
            assert_eq!(read.conflicts(&other), expected, "{other:?}");
            assert_eq!(other.conflicts(&read), expected, "{other:?}");
        }
    }

    #[test]
    fn barriers_come_where_a_command_needs_an_earlier_one() {
        let [a, b, c] = [1, 2, 3].map(|buffer| access(buffer, 0, 64, false));
        let written = |it: Access| Access { writes: true, ..it };
        let mut hazards = Hazards::default();
        for (step, (accesses, expected)) in [
            // a → b, a → c: both read a only.
            (vec![a, written(b)], false),
            (vec![a, written(c)], false),
            // b is read after it was written.
            (vec![b, written(access(4, 0, 64, false))], true),
            // c was written before that barrier.
            (vec![c], false),
            // b was read since the barrier, and is written now.
            (vec![written(b)], true),
            // Two writes to one place keep their order, those to different places need none.
            (vec![written(access(5, 0, 32, false))], false),
            (vec![written(access(5, 32, 64, false))], false),
            (vec![written(access(5, 31, 33, false))], true),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(hazards.admit(&accesses), expected, "step {step}");
        }
        assert!(touches(hazards.all(), &written(a)), "what came before barriers is remembered");
        assert!(!touches(hazards.all(), &a));
    }
}
