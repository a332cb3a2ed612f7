//! Where the ranks of a ring find each other: each rank announces itself, and once all are there,
//! each gets the addresses of all.
//!
//! A group exists while a rank waits for it. Nothing of it is kept once its ranks have met.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most ranks of one ring.
pub(crate) const RANKS_MAX: u32 = 256;
/// Most bytes of a group's name.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// Most ranks that wait at once, in all groups.
const WAITING_MAX: usize = 4096;

/// The announcement of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) group: String,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// How long it waits for the others, in milliseconds.
    pub(crate) patience_ms: u32,
}

/// What all ranks are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meeting {
    /// Different in each meeting: ranks recognise the others of their meeting by it.
    pub(crate) id: [u8; 16],
    /// The addresses, by rank.
    pub(crate) addrs: Vec<SocketAddr>,
}

/// Why a rank cannot join its ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum MeetingRefusal {
    /// A rank that no ring of that size has, or a size that no ring has.
    #[error("rank {rank} of {size}, expected a rank below the size and 1 to {RANKS_MAX} ranks")]
    Rank {
        /// The rank.
        rank: u32,
        /// The ranks of the ring, as this rank says.
        size: u32,
    },
    /// The name of the group is not valid.
    #[error("a group's name of {given} bytes, expected 1 to {NAME_BYTES_MAX}")]
    Name {
        /// Bytes of the name.
        given: usize,
    },
    /// The others of the group wait for another number of ranks.
    #[error("group {group:?} meets with {expected} ranks, not {given}")]
    Size {
        /// The group.
        group: String,
        /// The number of ranks that this rank gave.
        given: u32,
        /// The number of ranks that the first rank gave.
        expected: u32,
    },
    /// Another process has this rank.
    #[error("rank {rank} of group {group:?} is there already")]
    Taken {
        /// The group.
        group: String,
        /// The rank.
        rank: u32,
    },
    /// Other ranks did not come in time.
    #[error("of group {group:?} these ranks did not come in time: {missing:?}")]
    Missing {
        /// The group.
        group: String,
        /// The missing ranks.
        missing: Vec<u32>,
    },
    /// Too many ranks wait at once.
    #[error("{WAITING_MAX} ranks wait for others already")]
    Busy,
}

/// The groups whose ranks are not all there yet.
#[derive(Debug, Default)]
pub(crate) struct Rendezvous {
    groups: BTreeMap<String, Group>,
    waiting: usize,
}

#[derive(Debug)]
struct Group {
    size: u32,
    /// By rank: the caller's number for the visitor, and the visitor's address.
    present: BTreeMap<u32, (u64, SocketAddr)>,
}

impl Rendezvous {
    /// A rank arrives. Once all of its group are there, the group is over; the answer is then the
    /// meeting, and the visitors to tell of it, including this one.
    pub(crate) fn arrive(
        &mut self,
        visitor: u64,
        claim: &Claim,
        addr: SocketAddr,
        id: [u8; 16],
    ) -> Result<Option<(Meeting, Vec<u64>)>, MeetingRefusal> {
        let &Claim { ref group, rank, size, .. } = claim;
        check(group, rank, size)?;
        let (name, ranks) = (|| group.clone(), usize::try_from(size).unwrap_or(usize::MAX));
        let completes = |present: usize| present + 1 >= ranks;
        match self.groups.get(group) {
            Some(g) if g.size != size => {
                return Err(MeetingRefusal::Size { group: name(), given: size, expected: g.size });
            }
            Some(g) if g.present.contains_key(&rank) => {
                return Err(MeetingRefusal::Taken { group: name(), rank });
            }
            // A rank that completes a group makes room.
            Some(g) if completes(g.present.len()) => {}
            _ if self.waiting >= WAITING_MAX => return Err(MeetingRefusal::Busy),
            _ => {}
        }
        let found = self.groups.entry(name()).or_insert_with(|| Group::new(size));
        found.present.insert(rank, (visitor, addr));
        self.waiting += 1;
        if found.present.len() < ranks {
            return Ok(None);
        }
        let present = self.groups.remove(group).map(|group| group.present).unwrap_or_default();
        self.waiting = self.waiting.saturating_sub(present.len());
        let (visitors, addrs) = present.into_values().unzip();
        Ok(Some((Meeting { id, addrs }, visitors)))
    }

    /// A rank waits no more. Returns the missing ranks of its group; none if it had met.
    pub(crate) fn leave(&mut self, visitor: u64, claim: &Claim) -> Vec<u32> {
        let Some(group) = self.groups.get_mut(&claim.group) else { return Vec::new() };
        if group.present.get(&claim.rank).is_none_or(|(known, _)| *known != visitor) {
            return Vec::new();
        }
        let missing = (0..group.size).filter(|rank| !group.present.contains_key(rank)).collect();
        group.present.remove(&claim.rank);
        self.waiting = self.waiting.saturating_sub(1);
        if group.present.is_empty() {
            self.groups.remove(&claim.group);
        }
        missing
    }
}

impl Group {
    fn new(size: u32) -> Self {
        Self { size, present: BTreeMap::new() }
    }
}

/// Checks that such a rank can exist.
pub(crate) fn check(group: &str, rank: u32, size: u32) -> Result<(), MeetingRefusal> {
    if rank >= size || size > RANKS_MAX {
        return Err(MeetingRefusal::Rank { rank, size });
    }
    if group.is_empty() || group.len() > NAME_BYTES_MAX {
        return Err(MeetingRefusal::Name { given: group.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(group: &str, rank: u32, size: u32) -> Claim {
        Claim { group: group.into(), rank, size, patience_ms: 1000 }
    }

    fn addr(rank: u32) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], u16::try_from(rank).expect("small")))
    }

    fn arrive(
        meetings: &mut Rendezvous,
        visitor: u64,
        claim: &Claim,
    ) -> Result<Option<(Meeting, Vec<u64>)>, MeetingRefusal> {
        meetings.arrive(visitor, claim, addr(claim.rank), [7; 16])
    }

    #[test]
    fn who_comes_last_completes_the_meeting_for_all() {
        let mut meetings = Rendezvous::default();
        assert_eq!(arrive(&mut meetings, 11, &claim("a", 2, 3)), Ok(None));
        // Another group at the same time is independent.
        assert_eq!(arrive(&mut meetings, 12, &claim("b", 0, 2)), Ok(None));
        assert_eq!(arrive(&mut meetings, 13, &claim("a", 0, 3)), Ok(None));
        let meeting = Meeting { id: [7; 16], addrs: vec![addr(0), addr(1), addr(2)] };
        let met = arrive(&mut meetings, 14, &claim("a", 1, 3));
        assert_eq!(met, Ok(Some((meeting, vec![13, 14, 11]))));
        // The name is free again, and a rank that had met is not missing.
        assert_eq!(meetings.leave(14, &claim("a", 1, 3)), Vec::<u32>::new());
        assert_eq!(arrive(&mut meetings, 15, &claim("a", 1, 2)), Ok(None));
        assert_eq!((meetings.groups.len(), meetings.waiting), (2, 2));
    }

    #[test]
    fn ranks_that_do_not_fit_are_refused_and_change_nothing() {
        let mut meetings = Rendezvous::default();
        assert_eq!(arrive(&mut meetings, 1, &claim("a", 0, 3)), Ok(None));
        let long = "x".repeat(65);
        let cases = [
            (claim("a", 1, 4), "group \"a\" meets with 3 ranks, not 4"),
            (claim("a", 0, 3), "rank 0 of group \"a\" is there already"),
            (claim("a", 3, 3), "rank 3 of 3, expected a rank below the size"),
            (claim("b", 0, 0), "rank 0 of 0, expected"),
            (claim("b", 0, 257), "rank 0 of 257, expected"),
            (claim("", 0, 2), "a group's name of 0 bytes, expected 1 to 64"),
            (claim(&long, 0, 2), "a group's name of 65 bytes"),
        ];
        for (claim, expected) in cases {
            let error = arrive(&mut meetings, 2, &claim).expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
            // A refused rank that leaves removes no other.
            assert_eq!(meetings.leave(2, &claim), Vec::<u32>::new());
        }
        assert_eq!((meetings.groups.len(), meetings.waiting), (1, 1));
    }

    #[test]
    fn who_gives_up_learns_who_was_missing_and_leaves_its_place() {
        let mut meetings = Rendezvous::default();
        for rank in [0, 3] {
            assert_eq!(arrive(&mut meetings, u64::from(rank), &claim("a", rank, 4)), Ok(None));
        }
        assert_eq!(meetings.leave(0, &claim("a", 0, 4)), [1, 2]);
        assert_eq!(meetings.leave(3, &claim("a", 3, 4)), [0, 1, 2]);
        assert!(meetings.groups.is_empty() && meetings.waiting == 0);
    }

    #[test]
    fn waiting_ranks_are_bounded() {
        let mut meetings = Rendezvous::default();
        for visitor in 0..WAITING_MAX as u64 {
            let claim = claim(&format!("g{visitor}"), 0, 2);
            assert_eq!(arrive(&mut meetings, visitor, &claim), Ok(None));
        }
        assert_eq!(arrive(&mut meetings, 9999, &claim("late", 0, 2)), Err(MeetingRefusal::Busy));
        // A rank that others wait for gets in, and makes room.
        let met = arrive(&mut meetings, 9999, &claim("g1", 1, 2));
        assert!(met.is_ok_and(|met| met.is_some()));
        assert_eq!(arrive(&mut meetings, 9999, &claim("late", 0, 2)), Ok(None));
    }
}
