//! The state that results from the messages of a stream, taken in order.

use super::Trouble;
use super::frame::{self, Body, Carried, Message};
use super::index::Index;
use crate::control::chain::Link;
use crate::control::log::Change;
use crate::control::record::Key;
use crate::control::remembered;
use std::collections::BTreeMap;

/// The state after the messages that were taken.
#[derive(Debug)]
pub(super) struct State {
    /// The sequence of the last message that was taken; 0 before the first.
    pub(super) tail: u64,
    /// The writer of the last message, and its commit.
    tail_of: Option<(u64, Link)>,
    pub(super) last: Link,
    pub(super) carried: Carried,
    pub(super) index: Index,
    /// The number of the first commit in the stream.
    pub(super) first: Option<i64>,
    /// The last commit that this machine knows, and the digest that the stream has for its number.
    known: Option<Link>,
    found: Option<Vec<u8>>,
    /// The parts of an incomplete commit.
    parts: Option<Parts>,
    values: BTreeMap<Key, Vec<u8>>,
    kept_bytes: usize,
    kept_bytes_max: usize,
}

#[derive(Debug)]
struct Parts {
    /// The sequence of the first part.
    seq: u64,
    link: Link,
    writer: u64,
    next: u32,
    bytes: Vec<u8>,
}

impl State {
    pub(super) fn new(known: Option<Link>, kept_bytes_max: usize) -> Self {
        Self {
            tail: 0,
            tail_of: None,
            last: Link { number: 0, digest: Vec::new() },
            carried: Carried::default(),
            index: Index::default(),
            first: None,
            known,
            found: None,
            parts: None,
            values: BTreeMap::new(),
            kept_bytes: 0,
            kept_bytes_max,
        }
    }

    /// Restarts before the first message of the stream, if the next messages were purged.
    pub(super) fn begin(&mut self, first_seq: u64) {
        let before = first_seq.max(1) - 1;
        if self.tail < before {
            *self = Self::new(self.known.take(), self.kept_bytes_max);
            self.tail = before;
        }
    }

    /// Whether `payload` is the last message that was taken.
    pub(super) fn has_as_last(&self, payload: &[u8]) -> bool {
        let found = Message::decode(payload).map(|found| (found.writer, found.link));
        found.ok() == self.tail_of
    }

    /// The reason why the stream is not the known log, or an older state of it. If the known commit
    /// was purged since, only its number is compared.
    pub(super) fn older(&self) -> Option<String> {
        let known = self.known.as_ref()?;
        let is_there = self.first.is_none_or(|first| first <= known.number);
        is_there.then(|| remembered::refuse(known, &self.last, self.found.as_deref())).flatten()
    }

    /// Takes a cached value out of the cache.
    pub(super) fn value(&mut self, key: Key) -> Option<Vec<u8>> {
        self.values.remove(&key)
    }

    /// Applies message `seq`.
    pub(super) fn take(&mut self, seq: u64, payload: &[u8]) -> Result<(), Trouble> {
        let Message { after, writer, link, body } = Message::decode(payload)?;
        self.tail = seq;
        self.tail_of = Some((writer, link.clone()));
        if after.checked_add(1) != Some(seq) {
            // This message had a stale predecessor. A later commit number means that a message was
            // lost.
            return match self.first.is_some() && link.number > self.last.number {
                true => Err(Trouble::Damaged(format!("a message before message {seq} is lost"))),
                false => Ok(()),
            };
        }
        let parts = self.parts.take();
        match body {
            Body::Claimed(lead) => {
                self.follow(link, |last| last.claimed(lead))?;
                self.carried.claimed = self.carried.claimed.max(lead);
            }
            Body::Opened(opener) => {
                self.follow(link, |last| last.opened(opener))?;
                self.carried.lead = opener.lead;
                self.carried.epochs.extend([opener.lead, opener.epoch]);
            }
            Body::Part { at: 0, of, bytes } => {
                self.part(Parts { seq, link, writer, next: 1, bytes }, of)?;
            }
            Body::Part { at, of, bytes } => {
                // The commit began before the first message, or its writer never finished it.
                let Some(mut parts) = parts
                    .filter(|parts| (parts.next, parts.writer, &parts.link) == (at, writer, &link))
                else {
                    return Ok(());
                };
                parts.bytes.extend(bytes);
                parts.next += 1;
                self.part(parts, of)?;
            }
        }
        Ok(())
    }

    /// Applies the commit if its last part was added.
    fn part(&mut self, parts: Parts, of: u32) -> Result<(), Trouble> {
        if parts.next < of {
            self.parts = Some(parts);
            return Ok(());
        }
        let number = parts.link.number;
        let parsed = frame::parse(&parts.bytes);
        let odd = || Trouble::Damaged(format!("commit {number} says nothing"));
        let (carried, changes) = parsed.ok_or_else(odd)?;
        self.follow(parts.link, |last| last.next(&changes))?;
        if let Some(carried) = carried {
            self.carried = carried;
        }
        self.index.apply(parts.seq, &changes);
        changes.into_iter().for_each(|change| self.keep(change));
        Ok(())
    }

    fn keep(&mut self, change: Change) {
        let (key, value) = match change {
            Change::Put(record) => ((record.epoch, record.seq), Some(record.bytes)),
            Change::Remove { epoch, seq } => ((epoch, seq), None),
        };
        let old = self.values.remove(&key);
        self.kept_bytes -= old.map_or(0, |value| value.len());
        let has_room = |value: &Vec<u8>| self.kept_bytes + value.len() <= self.kept_bytes_max;
        if let Some(value) = value.filter(has_room) {
            self.kept_bytes += value.len();
            self.values.insert(key, value);
        }
    }

    /// Appends a commit to the last one, or takes it as the first one in the stream.
    fn follow(&mut self, link: Link, next: impl Fn(&Link) -> Link) -> Result<(), Trouble> {
        let is_first = self.first.is_none() && link.number != 1;
        if !is_first && next(&self.last) != link {
            return Err(Trouble::Damaged(format!(
                "commit {} does not follow commit {}",
                link.number, self.last.number
            )));
        }
        self.first.get_or_insert(link.number);
        if self.known.as_ref().is_some_and(|known| known.number == link.number) {
            self.found = Some(link.digest.clone());
        }
        self.last = link;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::log::Opener;
    use crate::control::record::Record;

    fn put(seq: u64) -> Change {
        Change::Put(Record { epoch: 1, seq, bytes: vec![7; 5] })
    }

    /// A log of an opening and some commits, each of one message, or of two if it puts 2.
    fn written() -> Vec<Message> {
        let opener = Opener { lead: 9, epoch: 4 };
        let mut last = Link { number: 0, digest: Vec::new() }.opened(opener);
        let opened =
            Message { after: 0, writer: 1, link: last.clone(), body: Body::Opened(opener) };
        let mut messages = vec![opened];
        for seq in 1..=3 {
            let changes = [put(seq)];
            last = last.next(&changes);
            let bytes = frame::commit(None, &changes);
            let parts = if seq == 2 { bytes.chunks(20) } else { bytes.chunks(1_000) };
            let of = u32::try_from(parts.len()).expect("few");
            for (at, part) in (0..).zip(parts) {
                let body = Body::Part { at, of, bytes: part.to_vec() };
                let after = messages.len().try_into().expect("few");
                messages.push(Message { after, writer: 1, link: last.clone(), body });
            }
        }
        messages
    }

    fn take(messages: &[Message], first: u64) -> Result<State, Trouble> {
        let mut state = State::new(None, 0);
        for (seq, message) in (first..).zip(messages) {
            state.take(seq, &message.encode())?;
        }
        Ok(state)
    }

    fn keys(state: &State) -> Vec<u64> {
        state.index.keys().map(|key| key.1).collect()
    }

    #[test]
    fn what_is_there_is_taken_from_any_beginning_and_to_any_end() {
        let messages = written();
        assert_eq!(messages.len(), 5);
        for (count, expected) in [(1, &[][..]), (2, &[1]), (3, &[1]), (4, &[1, 2]), (5, &[1, 2, 3])]
        {
            let state = take(&messages[..count], 1).expect("sound");
            assert_eq!(keys(&state), expected, "{count}");
            assert_eq!((state.carried.lead, state.carried.epochs.len()), (9, 2));
        }
        for (skipped, expected) in [(1, &[1, 2, 3][..]), (2, &[2, 3]), (3, &[3]), (4, &[3])] {
            let first = u64::try_from(skipped).expect("few") + 1;
            let state = take(&messages[skipped..], first).expect("purged before");
            assert_eq!(keys(&state), expected, "{skipped}");
        }
    }

    #[test]
    fn what_is_lost_or_another_is_noticed_and_what_came_late_is_not_counted() {
        for lost in 1..4 {
            let mut messages = written();
            messages.remove(lost);
            let error = take(&messages, 1).expect_err("one is lost").text();
            assert!(error.contains("is lost"), "{lost}: {error}");
        }
        let mut messages = written();
        messages[1].link.digest[3] ^= 1;
        let error = take(&messages, 1).expect_err("another").text();
        assert!(error.contains("commit 2 does not follow commit 1"), "{error}");
        // A writer that knew only two messages published on a server that ignored the expected
        // sequence.
        let mut messages = written();
        let changes = [put(8)];
        let link = messages[1].link.next(&changes);
        let body = Body::Part { at: 0, of: 1, bytes: frame::commit(None, &changes) };
        messages.push(Message { after: 2, writer: 2, link, body });
        assert_eq!(keys(&take(&messages, 1).expect("sound")), [1, 2, 3]);
    }
}
