//! Certificates that an administrator has revoked. They are forgotten once none of them could be
//! renewed any more. Time is an argument, in seconds since 1970.

use crate::error::Error;
use crate::net::identity::certificate::Member;
use crate::net::identity::role::Role;
use crate::worker_info::WorkerId;
use serde::{Deserialize, Serialize};

/// Most members whose certificates are kept as revoked.
const KEPT_MAX: usize = 4096;

/// The certificates that one member was given until it was revoked. Later ones, for a new token,
/// are good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The role of the member.
    pub role: Role,
    /// Its name.
    pub name: WorkerId,
    /// When it was revoked, in seconds since 1970.
    pub revoked_s: u64,
}

/// The revocations that are kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Revoked {
    /// The longest life of any certificate: a revocation matters for that long, and then for as
    /// long as members may be away.
    pub(super) longest_life_s: u64,
    pub(super) members: Vec<Revocation>,
    /// The time of the latest revocation that was forgotten. Even if members may be away for longer
    /// since, an expired certificate that was made before that time is not renewed.
    #[serde(default)]
    pub(super) forgotten_s: u64,
}

impl Revoked {
    /// Revokes a member's certificates so far. `newest_s` is when the newest one was made: it must
    /// not stay good because the clock was set back. Members may be away for `absence_s`.
    pub(super) fn add(
        &mut self,
        role: Role,
        name: WorkerId,
        (now_s, newest_s): (u64, u64),
        absence_s: u64,
    ) -> Result<Revocation, Error> {
        let kept_s = self.longest_life_s.saturating_add(absence_s);
        let same = |old: &&Revocation| (old.role, &old.name) == (role, &name);
        let before_s = self.members.iter().find(same).map_or(0, |old| old.revoked_s);
        let mut forgotten_s = self.forgotten_s;
        self.members.retain(|old| {
            let matters = now_s <= old.revoked_s.saturating_add(kept_s);
            if !matters {
                forgotten_s = forgotten_s.max(old.revoked_s);
            }
            matters && (old.role, &old.name) != (role, &name)
        });
        self.forgotten_s = forgotten_s;
        if self.members.len() >= KEPT_MAX {
            let given = u64::try_from(self.members.len()).unwrap_or(u64::MAX);
            let expected =
                format!("fewer than {KEPT_MAX}: wait until some could not be renewed any more");
            return Err(Error::TokenLimit { what: "members are revoked", given, expected });
        }
        let revoked_s = now_s.max(newest_s).max(before_s);
        let revocation = Revocation { role, name, revoked_s };
        self.members.push(revocation.clone());
        Ok(revocation)
    }

    /// Whether a member's certificate was revoked. A certificate that was made in the second of the
    /// revocation counts as made before it.
    pub(super) fn has(&self, member: &Member) -> bool {
        self.members.iter().any(|revoked| {
            (revoked.role, &revoked.name) == (member.role, &member.name)
                && member.issued_s <= revoked.revoked_s
        })
    }

    /// Whether a member's certificate, which has expired, may be one whose revocation was
    /// forgotten.
    pub(super) fn has_forgotten(&self, member: &Member) -> bool {
        member.issued_s <= self.forgotten_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> WorkerId {
        text.parse().expect("a name")
    }

    #[test]
    fn what_was_given_before_is_revoked_and_nothing_else() {
        let mut revoked = Revoked { longest_life_s: 100, ..Revoked::default() };
        revoked.add(Role::Worker, name("w"), (1000, 0), 0).expect("room");
        for (role, as_name, issued_s, expected) in [
            (Role::Worker, "w", 999, true),
            (Role::Worker, "w", 1000, true),
            (Role::Worker, "w", 1001, false),
            (Role::Worker, "v", 999, false),
            (Role::Client, "w", 999, false),
        ] {
            let member = Member { role, name: name(as_name), issued_s, until_s: u64::MAX };
            assert_eq!(revoked.has(&member), expected, "{member:?}");
        }
        // Again: the later time counts, and takes no more room.
        revoked.add(Role::Worker, name("w"), (1050, 0), 0).expect("room");
        assert_eq!(revoked.members.len(), 1);
        // After the clock was set back, certificates by the old clock are revoked, and stay so.
        let back = revoked.add(Role::Worker, name("w"), (500, 1050), 0).expect("room");
        assert_eq!(back.revoked_s, 1050);
        assert_eq!(
            revoked.add(Role::Worker, name("w"), (500, 0), 0).expect("room").revoked_s,
            1050
        );
        // A revocation is known as long as a certificate from before could be valid.
        revoked.add(Role::Client, name("c"), (1150, 0), 0).expect("room");
        assert_eq!(revoked.members.len(), 2);
        revoked.add(Role::Client, name("d"), (1151, 0), 0).expect("room");
        assert_eq!(revoked.members.len(), 2, "the first has expired");
    }

    #[test]
    fn what_is_forgotten_does_not_come_back() {
        let mut revoked = Revoked { longest_life_s: 100, ..Revoked::default() };
        let issued = |issued_s| Member {
            role: Role::Worker,
            name: name("w"),
            issued_s,
            until_s: issued_s + 100,
        };
        revoked.add(Role::Worker, name("w"), (1000, 0), 500).expect("room");
        // The last certificate expires at 1100 and could be renewed until 1600.
        revoked.add(Role::Worker, name("v"), (1600, 0), 500).expect("room");
        assert!(revoked.has(&issued(1000)) && !revoked.has_forgotten(&issued(1000)));
        revoked.add(Role::Worker, name("v"), (1601, 0), 500).expect("room");
        assert!(!revoked.has(&issued(1000)));
        // If members may then be away for longer, the certificate stays out all the same.
        assert!(revoked.has_forgotten(&issued(1000)) && !revoked.has_forgotten(&issued(1001)));
    }

    #[test]
    fn the_list_does_not_grow_without_end() {
        let mut revoked = Revoked { longest_life_s: 100, ..Revoked::default() };
        for n in 0..KEPT_MAX {
            revoked.add(Role::Worker, name(&format!("w{n}")), (0, 0), 0).expect("room");
        }
        let full = revoked.add(Role::Worker, name("w"), (0, 0), 0);
        assert!(matches!(full, Err(Error::TokenLimit { .. })), "{full:?}");
        revoked.add(Role::Worker, name("w0"), (50, 0), 0).expect("it is there already");
        revoked.add(Role::Worker, name("w"), (101, 0), 0).expect("room again");
        assert_eq!(revoked.members.len(), 2);
    }
}
