//! The byte format of the stream's messages, and of the changes of a commit.

use super::Trouble;
use crate::control::chain::Link;
use crate::control::log::{Change, Opener};
use crate::control::record::Record;
use std::collections::BTreeSet;

/// The format that this program writes; the first byte of a message.
pub(super) const FORMAT: u8 = 1;
const DIGEST_BYTES: usize = 32;
/// Bytes of a message around its part of a commit.
pub(super) const HEAD_BYTES: usize = 1 + 4 + 1 + 8 + 8 + 8 + DIGEST_BYTES + 4 + 4;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The sequence of the message that this one was published after. A message with another
    /// predecessor is ignored.
    pub(super) after: u64,
    /// Chosen at random by each writer, so that no two writers publish the same message.
    pub(super) writer: u64,
    /// The commit that this message is, or is a part of.
    pub(super) link: Link,
    pub(super) body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// A coordinator reads the log in order to open it. Nobody else may write meanwhile.
    Claimed(u64),
    Opened(Opener),
    /// One of the parts of a commit.
    Part {
        at: u32,
        of: u32,
        bytes: Vec<u8>,
    },
}

/// State that a commit carries over from messages that are purged after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Carried {
    /// The latest lead that opened the log.
    pub(super) lead: u64,
    /// The latest lead that claimed the log.
    pub(super) claimed: u64,
    /// The leads and the epochs of all coordinators that opened the log.
    pub(super) epochs: BTreeSet<u64>,
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT, 0, 0, 0, 0];
        let (kind, words, bytes): (u8, [u64; 2], &[u8]) = match &self.body {
            Body::Claimed(lead) => (1, [*lead, 0], &[]),
            Body::Opened(opener) => (2, [opener.lead, opener.epoch], &[]),
            Body::Part { at, of, bytes } => (3, [u64::from(*at) << 32 | u64::from(*of), 0], bytes),
        };
        out.push(kind);
        out.extend(self.after.to_le_bytes());
        out.extend(self.writer.to_le_bytes());
        out.extend(self.link.number.to_le_bytes());
        out.extend(&self.link.digest);
        out.extend(words[0].to_le_bytes());
        match kind {
            2 => out.extend(words[1].to_le_bytes()),
            _ => out.extend(bytes),
        }
        let crc = crc32fast::hash(out.get(5..).unwrap_or_default());
        if let Some(place) = out.get_mut(1..5) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        out
    }

    pub(super) fn decode(payload: &[u8]) -> Result<Self, Trouble> {
        let odd = |what: &str| Trouble::Damaged(format!("a message {what}"));
        let (format, rest) = payload.split_first().ok_or_else(|| odd("is empty"))?;
        if *format != FORMAT {
            return Err(Trouble::TooNew(u32::from(*format)));
        }
        let mut rest = Cut(rest);
        let short = || odd("is cut short");
        let crc = u32::from_le_bytes(rest.take().ok_or_else(short)?);
        if crc32fast::hash(rest.0) != crc {
            return Err(odd("has another checksum than was written"));
        }
        let [kind] = rest.take().ok_or_else(short)?;
        let after = rest.number().ok_or_else(short)?;
        let writer = rest.number().ok_or_else(short)?;
        let number = i64::from_le_bytes(rest.take().ok_or_else(short)?);
        let digest = rest.take::<DIGEST_BYTES>().ok_or_else(short)?.to_vec();
        let word = rest.number().ok_or_else(short)?;
        let body = match kind {
            1 => Body::Claimed(word),
            2 => Body::Opened(Opener { lead: word, epoch: rest.number().ok_or_else(short)? }),
            3 => {
                let half = |word: u64| u32::try_from(word & 0xFFFF_FFFF).unwrap_or_default();
                Body::Part { at: half(word >> 32), of: half(word), bytes: rest.0.to_vec() }
            }
            _ => return Err(odd("is of no known kind")),
        };
        Ok(Self { after, writer, link: Link { number, digest }, body })
    }
}

/// The bytes of a commit, which are split over its messages.
pub(super) fn commit<'a>(
    carried: Option<&Carried>,
    changes: impl IntoIterator<Item = &'a Change>,
) -> Vec<u8> {
    let mut out = vec![u8::from(carried.is_some())];
    if let Some(carried) = carried {
        let count = u64::try_from(carried.epochs.len()).unwrap_or(u64::MAX);
        let words = [carried.lead, carried.claimed, count];
        words.iter().chain(&carried.epochs).for_each(|word| out.extend(word.to_le_bytes()));
    }
    for change in changes {
        let (kind, key, bytes) = match change {
            Change::Put(record) => (1, (record.epoch, record.seq), record.bytes.as_slice()),
            Change::Remove { epoch, seq } => (2, (*epoch, *seq), [].as_slice()),
        };
        out.push(kind);
        out.extend(key.0.to_le_bytes());
        out.extend(key.1.to_le_bytes());
        out.extend(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        out.extend(bytes);
    }
    out
}

/// Decodes the bytes of a commit; `None` if they are invalid.
pub(super) fn parse(bytes: &[u8]) -> Option<(Option<Carried>, Vec<Change>)> {
    let mut rest = Cut(bytes);
    let carried = match rest.take()? {
        [0] => None,
        [1] => {
            let (lead, claimed, count) = (rest.number()?, rest.number()?, rest.number()?);
            let epochs = (0..count).map(|_| rest.number()).collect::<Option<_>>()?;
            Some(Carried { lead, claimed, epochs })
        }
        _ => return None,
    };
    let mut changes = Vec::new();
    while !rest.0.is_empty() {
        let [kind] = rest.take()?;
        let (epoch, seq) = (rest.number()?, rest.number()?);
        let length = usize::try_from(rest.number()?).ok()?;
        let (bytes, after) = rest.0.split_at_checked(length)?;
        rest.0 = after;
        changes.push(match kind {
            1 => Change::Put(Record { epoch, seq, bytes: bytes.to_vec() }),
            2 if bytes.is_empty() => Change::Remove { epoch, seq },
            _ => return None,
        });
    }
    Some((carried, changes))
}

/// Bytes that are consumed from the front.
struct Cut<'a>(&'a [u8]);

impl Cut<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: Body) -> Message {
        let link = Link { number: 4, digest: vec![7; DIGEST_BYTES] };
        Message { after: 3, writer: 9, link, body }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for body in [
            Body::Claimed(5),
            Body::Opened(Opener { lead: 5, epoch: 6 }),
            Body::Part { at: 1, of: 3, bytes: b"some".to_vec() },
        ] {
            let bytes = message(body.clone()).encode();
            assert!(bytes.len() <= HEAD_BYTES + 8);
            assert_eq!(Message::decode(&bytes).expect("ours"), message(body));
            for cut in 0..bytes.len() {
                assert!(Message::decode(&bytes[..cut]).is_err(), "{cut}");
            }
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Message::decode(&flipped).is_err(), "{bit}");
            }
        }
        let newer = Message::decode(&[FORMAT + 1, 0]).expect_err("of a later program");
        assert!(matches!(newer, Trouble::TooNew(2)));
    }

    #[test]
    fn commits_are_read_as_they_were_written() {
        let put = |seq, bytes: &[u8]| Change::Put(Record { epoch: 1, seq, bytes: bytes.to_vec() });
        let changes = vec![put(1, b"one"), Change::Remove { epoch: 1, seq: 2 }, put(3, b"")];
        let carried = Carried { lead: 1, claimed: 2, epochs: [4, 9].into() };
        for carried in [None, Some(carried)] {
            let bytes = commit(carried.as_ref(), &changes);
            assert_eq!(parse(&bytes), Some((carried, changes.clone())));
            let whole = (0..bytes.len()).filter(|cut| parse(&bytes[..*cut]).is_some());
            assert!(whole.count() <= changes.len(), "only where a change ends");
        }
        let mut endless = vec![1];
        endless.extend([255; 24]);
        assert_eq!(parse(&endless), None);
    }
}
