//! Join tokens: `LGP1.<CA hash>.<secret>`, and the table of those that were given out.
//!
//! The table knows secrets by their hashes only. Time is an argument, in seconds since 1970.

mod store;

pub use store::Tokens;

use crate::error::Error;
use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::pki::CaHash;
use crate::net::identity::role::Role;
use crate::worker_info::WorkerId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

const PREFIX: &str = "LGP1";
/// Characters that an error quotes of a text that is no token.
const SHOWN: usize = 8;
/// Most tokens that are kept, including those that let no machine in any more.
const KEPT_MAX: usize = 1024;
/// How long a token is remembered after its time, so that late joiners learn the reason.
const REMEMBERED_S: u64 = 7 * 24 * 3600;

/// Lets a machine join: the cluster that it may trust, and the secret that it shows that cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    pub(crate) authority: CaHash,
    pub(crate) secret: Secret,
}

/// Random bytes that cannot be guessed.
pub(crate) type Secret = [u8; 16];

impl JoinToken {
    /// The hash of the cluster's certificate authority.
    #[must_use]
    pub fn authority(&self) -> CaHash {
        self.authority
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}.{}.{}", self.authority, hex::encode(self.secret))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret must not reach a log.
        f.debug_struct("JoinToken").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl FromStr for JoinToken {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let mut parts = text.split('.');
            let (prefix, authority, secret) = (parts.next()?, parts.next()?, parts.next()?);
            let whole = prefix == PREFIX && parts.next().is_none();
            let mut bytes = Secret::default();
            hex::decode_to_slice(secret, &mut bytes).ok()?;
            whole.then_some(Self { authority: authority.parse().ok()?, secret: bytes })
        };
        parse().ok_or_else(|| Error::Parse {
            what: "join token",
            // What follows may be most of a secret.
            given: text.chars().take(SHOWN).chain(text.chars().nth(SHOWN).map(|_| '…')).collect(),
            expected: "LGP1.HASH.SECRET, as token create prints it",
        })
    }
}

/// The data of a token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// The id by which the token is listed and revoked.
    pub id: String,
    /// The role of a machine that joins with the token.
    #[serde(default = "worker")]
    pub role: Role,
    /// When it was made, in seconds since 1970.
    pub created_s: u64,
    /// When it ceases to work, in seconds since 1970.
    pub expires_s: u64,
    /// How many machines it lets in altogether.
    pub uses: u32,
    /// How many machines it still lets in.
    pub uses_left: u32,
    /// The administrator who made it, by role and name; `None` where the coordinator's operator
    /// did. Revoking the administrator takes the token back.
    #[serde(default)]
    pub made_by: Option<Maker>,
}

/// Role and name of a member who made a token.
pub(crate) type Maker = (Role, WorkerId);

/// The role of a stored token that names none.
fn worker() -> Role {
    Role::Worker
}

/// A token as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredToken {
    #[serde(flatten)]
    info: TokenInfo,
    /// SHA-256 of the secret, hexadecimal.
    sha256: String,
}

/// The tokens of a cluster.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Table {
    tokens: Vec<StoredToken>,
}

impl Table {
    fn create(
        &mut self,
        secret: &Secret,
        role: Role,
        (uses, ttl_s): (u32, u64),
        now_s: u64,
        made_by: Option<Maker>,
    ) -> Result<TokenInfo, Error> {
        self.forget(now_s);
        if self.tokens.len() >= KEPT_MAX {
            let given = u64::try_from(self.tokens.len()).unwrap_or(u64::MAX);
            let expected = format!("fewer than {KEPT_MAX}: revoke some");
            return Err(Error::TokenLimit { what: "tokens are kept", given, expected });
        }
        let sha256 = digest(secret);
        // The hash cannot be reversed, so a part of it can be shown.
        let id = hex::encode(sha256.first_chunk::<4>().unwrap_or(&[0; 4]));
        let expires_s = now_s.saturating_add(ttl_s);
        let (created_s, uses_left) = (now_s, uses);
        let info = TokenInfo { id, role, created_s, expires_s, uses, uses_left, made_by };
        self.tokens.push(StoredToken { info: info.clone(), sha256: hex::encode(sha256) });
        Ok(info)
    }

    /// The place of a secret's token, if the token lets one more member of a role in.
    fn find(&self, secret: &Secret, role: Role, now_s: u64) -> Result<usize, JoinRefusal> {
        let sha256 = digest(secret);
        let mut found = u64::MAX;
        // Every token is compared, and each to its end: the time taken tells nothing.
        for (at, kept) in (0u64..).zip(&self.tokens) {
            let mut known = [0; 32];
            // A malformed digest stays zero, which no secret has.
            let _ = hex::decode_to_slice(&kept.sha256, &mut known);
            let same: Choice = known.ct_eq(&sha256);
            found = u64::conditional_select(&found, &at, same);
        }
        let place = usize::try_from(found).ok();
        let Some((place, kept)) = place.and_then(|at| Some((at, self.tokens.get(at)?))) else {
            return Err(JoinRefusal::TokenUnknown);
        };
        if kept.info.uses_left == 0 {
            return Err(JoinRefusal::TokenUsedUp);
        }
        if now_s >= kept.info.expires_s {
            return Err(JoinRefusal::TokenExpired);
        }
        if kept.info.role != role {
            return Err(JoinRefusal::TokenRole { makes: kept.info.role, wanted: role });
        }
        Ok(place)
    }

    /// Takes one use of a token.
    fn consume(&mut self, secret: &Secret, role: Role, now_s: u64) -> Result<(), JoinRefusal> {
        let place = self.find(secret, role, now_s)?;
        if let Some(kept) = self.tokens.get_mut(place) {
            kept.info.uses_left = kept.info.uses_left.saturating_sub(1);
        }
        Ok(())
    }

    /// Removes a token. False when there is none of this id.
    fn revoke(&mut self, id: &str) -> bool {
        let before = self.tokens.len();
        self.tokens.retain(|kept| kept.info.id != id);
        self.tokens.len() < before
    }

    /// Removes the tokens that a member has made; returns their ids.
    fn take_back(&mut self, maker: &Maker) -> Vec<String> {
        let gone = self.tokens.extract_if(.., |kept| kept.info.made_by.as_ref() == Some(maker));
        gone.map(|kept| kept.info.id).collect()
    }

    fn forget(&mut self, now_s: u64) {
        self.tokens.retain(|kept| now_s < kept.info.expires_s.saturating_add(REMEMBERED_S));
    }
}

fn digest(secret: &Secret) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_as_text_and_hides_its_secret() {
        let token = JoinToken { authority: "ab".repeat(32).parse().expect("hex"), secret: [7; 16] };
        let text = token.to_string();
        assert_eq!(text, format!("LGP1.{}.{}", "ab".repeat(32), "07".repeat(16)));
        assert_eq!(text.parse::<JoinToken>().expect("a token"), token);
        assert!(!format!("{token:?}").contains("0707"));
        let (hash, secret) = ("ab".repeat(32), "07".repeat(16));
        for text in [
            String::new(),
            "LGP1".into(),
            "LGP1.hal".into(),
            format!("LGP1.{hash}"),
            format!("LGP2.{hash}.{secret}"),
            format!("LGP1.{hash}.{secret}."),
            format!("LGP1.{hash}.{secret}00"),
            format!("LGP1.{secret}.{hash}"),
            format!(" LGP1.{hash}.{secret}"),
        ] {
            let error = text.parse::<JoinToken>().expect_err(&text).to_string();
            assert!(!error.contains(&secret), "{error}");
            assert_eq!(error.contains('…'), text.chars().count() > SHOWN, "{error}");
        }
    }

    #[test]
    fn tokens_are_counted_and_end() {
        let mut table = Table::default();
        let (once, twice, brief, other) = ([1; 16], [2; 16], [3; 16], [4; 16]);
        let id = table.create(&once, Role::Worker, (1, 100), 1000, None).expect("room").id;
        table.create(&twice, Role::Worker, (2, 100), 1000, None).expect("room");
        table.create(&brief, Role::Worker, (9, 10), 1000, None).expect("room");
        for (secret, now, expected) in [
            (other, 1000, Err(JoinRefusal::TokenUnknown)),
            (once, 1099, Ok(())),
            (once, 1099, Err(JoinRefusal::TokenUsedUp)),
            (twice, 1001, Ok(())),
            (twice, 1002, Ok(())),
            (twice, 1003, Err(JoinRefusal::TokenUsedUp)),
            (brief, 1009, Ok(())),
            (brief, 1010, Err(JoinRefusal::TokenExpired)),
            // So late that the token would be forgotten, had the clock not gone back.
            (brief, u64::MAX, Err(JoinRefusal::TokenExpired)),
        ] {
            assert_eq!(table.consume(&secret, Role::Worker, now), expected, "{secret:?} at {now}");
        }
        assert!(table.revoke(&id) && !table.revoke(&id));
        assert_eq!(table.consume(&once, Role::Worker, 1000), Err(JoinRefusal::TokenUnknown));
        let late = 1010 + REMEMBERED_S;
        table.create(&other, Role::Worker, (1, 1), late, None).expect("room");
        assert_eq!(table.tokens.len(), 2, "the brief one is forgotten");
    }

    #[test]
    fn what_an_administrator_has_made_is_taken_back_and_nothing_else() {
        let mut table = Table::default();
        let by = |name: &str| (Role::Admin, name.parse::<WorkerId>().expect("a name"));
        for (secret, made_by) in [(1, None), (2, Some(by("alice"))), (3, Some(by("bob")))] {
            table.create(&[secret; 16], Role::Worker, (1, 100), 0, made_by).expect("room");
        }
        assert_eq!(table.take_back(&by("alice")).len(), 1);
        assert_eq!(table.consume(&[2; 16], Role::Worker, 0), Err(JoinRefusal::TokenUnknown));
        assert_eq!(table.consume(&[1; 16], Role::Worker, 0), Ok(()));
        assert_eq!(table.consume(&[3; 16], Role::Worker, 0), Ok(()));
    }

    #[test]
    fn a_token_makes_what_it_was_made_for() {
        for makes in Role::ALL {
            let mut table = Table::default();
            table.create(&[1; 16], makes, (1, 100), 1000, None).expect("room");
            for wanted in Role::ALL.into_iter().filter(|wanted| *wanted != makes) {
                let refused = table.consume(&[1; 16], wanted, 1000);
                assert_eq!(refused, Err(JoinRefusal::TokenRole { makes, wanted }));
            }
            assert_eq!(table.consume(&[1; 16], makes, 1000), Ok(()), "nothing was used up");
        }
        let old = r#"{"tokens":[{"id":"a","created_s":1,"expires_s":2,"uses":1,"uses_left":1,
            "sha256":"00"}]}"#;
        let old: Table = serde_json::from_str(old).expect("as it was written once");
        assert_eq!(old.tokens.first().map(|kept| kept.info.role), Some(Role::Worker));
    }

    #[test]
    fn the_table_does_not_grow_without_end() {
        let mut table = Table::default();
        for n in 0..KEPT_MAX {
            let secret = (n as u128).to_le_bytes();
            table.create(&secret, Role::Worker, (1, 100), 0, None).expect("room");
        }
        assert!(matches!(
            table.create(&[9; 16], Role::Worker, (1, 100), 0, None),
            Err(Error::TokenLimit { .. })
        ));
        let late = REMEMBERED_S + 100;
        table.create(&[9; 16], Role::Worker, (1, 100), late, None).expect("room again");
    }
}
