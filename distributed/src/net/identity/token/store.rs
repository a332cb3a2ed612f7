//! The table of tokens on the disk: a use that was taken stays taken, whatever happens later.

use super::{JoinToken, Maker, Secret, Table, TokenInfo};
use crate::clock::now_s;
use crate::control::persisted::Persisted;
use crate::error::{Error, Result};
use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::pki::{CaHash, Pki};
use crate::net::identity::role::Role;
use std::sync::Arc;
use std::time::Duration;

/// The authority's file of tokens.
const TOKENS: &str = "tokens.json";
const TOKENS_REMEDY: &str = "delete it to revoke every token; machines that joined stay joined";
/// Limits of a token.
const USES_MAX: u32 = 10_000;
const TTL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The join tokens of a cluster. Clones share them.
#[derive(Debug, Clone)]
pub struct Tokens(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    authority: CaHash,
    table: Persisted<Table>,
}

impl Tokens {
    /// The tokens for an authority, kept where it is: in the folder of [`Pki::open`], or in memory.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the file does not parse, with what to do; [`Error::File`].
    pub fn open(pki: &Pki) -> Result<Self> {
        let table = Persisted::open(pki.lead(), TOKENS, TOKENS_REMEDY, Table::default())?;
        Ok(Self(Arc::new(Inner { authority: pki.hash(), table })))
    }

    /// Makes a token that lets `uses` machines join as workers within `ttl`. Only this call shows
    /// the token: the table does not have its secret.
    ///
    /// # Errors
    /// [`Error::TokenLimit`]; [`Error::File`].
    pub fn create(&self, uses: u32, ttl: Duration) -> Result<(TokenInfo, JoinToken)> {
        self.create_for(Role::Worker, uses, ttl)
    }

    /// The same for members of any role.
    ///
    /// # Errors
    /// As [`Tokens::create`].
    pub fn create_for(
        &self,
        role: Role,
        uses: u32,
        ttl: Duration,
    ) -> Result<(TokenInfo, JoinToken)> {
        self.create_by(None, role, uses, ttl)
    }

    /// The same for an administrator who asks for it.
    pub(crate) fn create_by(
        &self,
        made_by: Option<Maker>,
        role: Role,
        uses: u32,
        ttl: Duration,
    ) -> Result<(TokenInfo, JoinToken)> {
        let limit = |what, given, expected| Err(Error::TokenLimit { what, given, expected });
        if !(1..=USES_MAX).contains(&uses) {
            return limit("uses", uses.into(), format!("1 to {USES_MAX}"));
        }
        if !(1..=TTL_MAX.as_secs()).contains(&ttl.as_secs()) {
            let expected = format!("1 to {}", TTL_MAX.as_secs());
            return limit("seconds to live", ttl.as_secs(), expected);
        }
        let secret: Secret = rand::random();
        let extent = (uses, ttl.as_secs());
        let table = &self.0.table;
        let info =
            table.change(|table| table.create(&secret, role, extent, now_s(), made_by))??;
        Ok((info, JoinToken { authority: self.0.authority, secret }))
    }

    /// Every token that is kept, in the order in which they were made.
    #[must_use]
    pub fn list(&self) -> Vec<TokenInfo> {
        self.0.table.read().tokens.iter().map(|kept| kept.info.clone()).collect()
    }

    /// Takes a token back. Machines that joined with it stay joined.
    ///
    /// # Errors
    /// [`Error::UnknownToken`]; [`Error::File`].
    pub fn revoke(&self, id: &str) -> Result<()> {
        if self.0.table.change(|table| table.revoke(id).then_some(()).ok_or(()))?.is_ok() {
            return Ok(());
        }
        Err(Error::UnknownToken { id: id.chars().take(64).collect() })
    }

    /// Takes back the tokens that a member has made, and then writes that down; returns their ids.
    /// Waits for the disk.
    pub(crate) fn take_back(&self, maker: &Maker) -> (Vec<String>, Result<()>) {
        let any = self.0.table.read().tokens.iter().any(|t| t.info.made_by.as_ref() == Some(maker));
        if !any {
            return (Vec::new(), Ok(()));
        }
        let taken = self.0.table.insist(|table| Ok(table.take_back(maker)));
        taken.unwrap_or_else(|error| (Vec::new(), Err(error)))
    }

    /// Whether a secret would let in a member of a role.
    pub(crate) fn check(&self, secret: &Secret, role: Role) -> Result<(), JoinRefusal> {
        self.0.table.read().find(secret, role, now_s()).map(|_| ())
    }

    /// Takes one use of a secret's token; once this returns, no restart gives it back.
    pub(crate) fn consume(&self, secret: &Secret, role: Role) -> Result<(), JoinRefusal> {
        let consumed = self.0.table.change(|table| table.consume(secret, role, now_s()));
        consumed.unwrap_or_else(|error| {
            tracing::error!(%error, "a token's use cannot be recorded, so nobody is let in");
            Err(JoinRefusal::Unavailable)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn what_was_used_stays_used_after_a_restart() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("pki");
        let open = || Pki::open(&path).and_then(|pki| Tokens::open(&pki)).expect("sound");
        let (info, token) = open().create(2, HOUR).expect("room");
        assert_eq!(token.authority(), Pki::open(&path).expect("sound").hash());
        let tokens = open();
        tokens.consume(&token.secret, Role::Worker).expect("once");
        let tokens = open();
        assert_eq!(tokens.list().first().map(|t| (t.uses, t.uses_left)), Some((2, 1)));
        tokens.consume(&token.secret, Role::Worker).expect("twice");
        assert_eq!(open().consume(&token.secret, Role::Worker), Err(JoinRefusal::TokenUsedUp));
        open().revoke(&info.id).expect("known");
        assert_eq!(open().check(&token.secret, Role::Worker), Err(JoinRefusal::TokenUnknown));
        assert!(matches!(open().revoke(&info.id), Err(Error::UnknownToken { .. })));
        assert!(open().list().is_empty());
    }

    #[test]
    fn the_file_is_private_and_tells_no_secret() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pki = Pki::open(&folder.path().join("pki")).expect("random numbers");
        let (_, token) = Tokens::open(&pki).and_then(|t| t.create(1, HOUR)).expect("room");
        let path = folder.path().join("pki").join(TOKENS);
        let text = std::fs::read_to_string(&path).expect("text");
        assert!(!text.contains(&hex::encode(token.secret)));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = path.metadata().expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        std::fs::write(&path, &text[..text.len() / 2]).expect("ours");
        let error = Tokens::open(&pki).expect_err("half a file");
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }

    #[test]
    fn a_use_that_cannot_be_recorded_is_not_granted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pki = Pki::open(&folder.path().join("pki")).expect("random numbers");
        let tokens = Tokens::open(&pki).expect("sound");
        let (_, token) = tokens.create(1, HOUR).expect("room");
        drop(folder);
        assert_eq!(tokens.consume(&token.secret, Role::Worker), Err(JoinRefusal::Unavailable));
        assert_eq!(tokens.list().first().map(|t| t.uses_left), Some(1));
    }

    #[test]
    fn limits_are_said() {
        let tokens = Tokens::open(&Pki::generate().expect("random numbers")).expect("new");
        for (uses, ttl) in [(0, HOUR), (USES_MAX + 1, HOUR), (1, Duration::ZERO), (1, TTL_MAX * 2)]
        {
            let error = tokens.create(uses, ttl).expect_err("beyond");
            assert!(matches!(error, Error::TokenLimit { .. }), "{error}");
        }
    }
}
