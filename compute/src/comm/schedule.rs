//! Which chunk a link sends next. Time is an argument, and nothing here waits.

use super::pace::Pace;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

/// A transfer of a link. Tickets are ordered as their transfers are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket {
    priority: Reverse<u8>,
    number: u64,
}

/// A part of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) ticket: Ticket,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// The next step of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Send(Chunk),
    /// Nothing may begin before this moment.
    Wait(Instant),
    Idle,
}

/// The part of a transfer that has not been sent.
#[derive(Debug)]
struct Rest {
    offset: usize,
    bytes: usize,
}

/// Transfers with bytes left to send. A higher priority comes first; within a priority, the earlier
/// transfer does.
#[derive(Debug)]
pub(super) struct Schedule {
    chunk_bytes: usize,
    pace: Option<Pace>,
    waiting: BTreeMap<Ticket, Rest>,
    issued: u64,
}

impl Schedule {
    /// Transfers are sent in chunks of at most `chunk_bytes`, 1 at least.
    pub(super) fn new(chunk_bytes: usize, pace: Option<Pace>) -> Self {
        Self { chunk_bytes: chunk_bytes.max(1), pace, waiting: BTreeMap::new(), issued: 0 }
    }

    /// Adds a transfer.
    pub(super) fn push(&mut self, bytes: usize, priority: u8) -> Ticket {
        let ticket = Ticket { priority: Reverse(priority), number: self.issued };
        self.issued += 1;
        if bytes > 0 {
            self.waiting.insert(ticket, Rest { offset: 0, bytes });
        }
        ticket
    }

    /// Takes the next chunk out.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let Some(mut first) = self.waiting.first_entry() else { return Next::Idle };
        if let Some(moment) = self.pace.as_ref().and_then(|pace| pace.opens(now)) {
            return Next::Wait(moment);
        }
        let (ticket, rest) = (*first.key(), first.get_mut());
        let chunk = Chunk { ticket, offset: rest.offset, bytes: rest.bytes.min(self.chunk_bytes) };
        rest.offset += chunk.bytes;
        rest.bytes -= chunk.bytes;
        if rest.bytes == 0 {
            first.remove();
        }
        if let Some(pace) = &mut self.pace {
            pace.take(now, chunk.bytes);
        }
        Next::Send(chunk)
    }

    /// Cancels the part of a transfer that has not been sent.
    pub(super) fn cancel(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// Bytes that have not been sent.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.values().map(|rest| rest.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU64;
    use std::time::Duration;

    #[test]
    fn a_higher_priority_overtakes_between_chunks() {
        let now = Instant::now();
        let mut schedule = Schedule::new(10, None);
        let low = schedule.push(25, 1);
        let chunk = |ticket, offset, bytes| Next::Send(Chunk { ticket, offset, bytes });
        assert_eq!(schedule.next(now), chunk(low, 0, 10));
        let high = schedule.push(12, 2);
        let alike = schedule.push(1, 1);
        let order = [(high, 0, 10), (high, 10, 2), (low, 10, 10), (low, 20, 5), (alike, 0, 1)];
        for (ticket, offset, bytes) in order {
            assert_eq!(schedule.next(now), chunk(ticket, offset, bytes));
        }
        assert_eq!(schedule.next(now), Next::Idle);
    }

    proptest! {
        /// For any sequence of transfers: each byte is sent once unless cancelled, the served
        /// transfer has the highest priority, and in no time more bytes are sent than the limit and
        /// two chunks.
        #[test]
        fn bytes_are_sent_once_by_priority_within_the_limit(
            chunk_bytes in 1usize..64,
            rate in 1u64..1000,
            actions in proptest::collection::vec((0usize..200, 0u8..4, 0u8..8, 0u64..500), 1..60),
        ) {
            let begin = Instant::now();
            let mut now = begin;
            let pace = NonZeroU64::new(rate).map(|rate| Pace::new(rate, chunk_bytes));
            let mut schedule = Schedule::new(chunk_bytes, pace);
            let mut jobs: BTreeMap<Ticket, (usize, usize)> = BTreeMap::new();
            let mut log: Vec<(Instant, usize)> = Vec::new();
            let mut actions = actions.into_iter();
            loop {
                match schedule.next(now) {
                    Next::Send(chunk) => {
                        let open = jobs.iter().filter(|(_, (sent, bytes))| sent < bytes);
                        prop_assert_eq!(open.map(|(ticket, _)| *ticket).min(), Some(chunk.ticket));
                        let (sent, bytes) = jobs.get_mut(&chunk.ticket).expect("it was pushed");
                        prop_assert_eq!(chunk.offset, *sent);
                        prop_assert!(chunk.bytes > 0 && chunk.bytes <= chunk_bytes);
                        *sent += chunk.bytes;
                        prop_assert!(*sent <= *bytes);
                        log.push((now, chunk.bytes));
                    }
                    Next::Wait(moment) => {
                        prop_assert!(moment > now);
                        now = moment;
                    }
                    Next::Idle => {
                        prop_assert!(jobs.values().all(|(sent, bytes)| sent == bytes));
                        if actions.len() == 0 { break }
                    }
                }
                let Some((bytes, priority, cancel, pause)) = actions.next() else { continue };
                now += Duration::from_millis(pause);
                jobs.insert(schedule.push(bytes, priority), (0, bytes));
                if cancel == 0 && let Some((ticket, job)) = jobs.iter_mut().next_back() {
                    schedule.cancel(*ticket);
                    job.1 = job.0;
                }
                let left: usize = jobs.values().map(|(sent, bytes)| bytes - sent).sum();
                prop_assert_eq!(schedule.waiting_bytes(), left);
            }
            for (i, (start, _)) in log.iter().enumerate() {
                let mut sum = 0;
                for (end, bytes) in &log[i..] {
                    sum += bytes;
                    let allowed = (*end - *start).as_secs_f64() * rate as f64;
                    prop_assert!(sum as f64 <= allowed + 2.0 * chunk_bytes as f64 + 1e-3);
                }
            }
        }
    }
}
