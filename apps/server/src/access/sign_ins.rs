//! Browser sign-ins: a one-time link is exchanged for a key that is valid for half a day and lives in memory. It
//! has the rights and limits of the key that requested the link.

use super::keys::{Secret, digest, now_s};
use crate::error::Result;
use std::sync::{Mutex, MutexGuard, PoisonError};
use subtle::ConstantTimeEq;

/// Lifetime of a link in seconds.
const LINK_S: u64 = 120;
/// Lifetime in seconds of a key that a link was exchanged for.
const KEY_S: u64 = 12 * 3600;
/// The most links, and the most keys, at once.
const MOST: usize = 256;

/// Unused links, and the keys of used ones.
#[derive(Debug, Default)]
pub(crate) struct SignIns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    links: Vec<Given>,
    keys: Vec<Given>,
}

/// A link or a key, stored without its secret.
#[derive(Debug)]
struct Given {
    /// The id of the key that it represents.
    by: String,
    expires_s: u64,
    sha256: [u8; 32],
}

impl Given {
    /// Makes a link or key with this lifetime, and returns its secret text.
    fn new(kind: &str, by: &str, ttl_s: u64) -> Result<(Self, String)> {
        let text = Secret::new()?.text(kind);
        let (by, expires_s) = (by.to_owned(), now_s() + ttl_s);
        Ok((Self { by, expires_s, sha256: digest(&text) }, text))
    }

    fn is(&self, given: &[u8; 32]) -> bool {
        self.sha256.ct_eq(given).into()
    }
}

impl SignIns {
    /// Makes a code that can be exchanged once within two minutes, for the key with this id. Returns the code and
    /// its expiry in seconds since 1970; `None` if too many codes are unused.
    ///
    /// # Errors
    /// [`Error::Random`](crate::Error::Random).
    pub(crate) fn link(&self, by: &str) -> Result<Option<(String, u64)>> {
        let (link, code) = Given::new("link", by, LINK_S)?;
        let expires_s = link.expires_s;
        let mut state = self.lock();
        if state.links.len() >= MOST {
            return Ok(None);
        }
        state.links.push(link);
        Ok(Some((code, expires_s)))
    }

    /// Exchanges a code for a key and its expiry; `None` for a code that is unknown, used or expired. If there are
    /// too many keys, the oldest is dropped.
    ///
    /// # Errors
    /// [`Error::Random`](crate::Error::Random).
    pub(crate) fn exchange(&self, code: &str) -> Result<Option<(String, u64)>> {
        let given = digest(code);
        let mut state = self.lock();
        let Some(at) = state.links.iter().position(|link| link.is(&given)) else { return Ok(None) };
        let link = state.links.swap_remove(at);
        let (key, text) = Given::new("web", &link.by, KEY_S)?;
        let expires_s = key.expires_s;
        if state.keys.len() >= MOST {
            state.keys.remove(0);
        }
        state.keys.push(key);
        Ok(Some((text, expires_s)))
    }

    /// The id of the key that a sign-in's key represents.
    pub(super) fn find(&self, text: &str) -> Option<String> {
        let given = digest(text);
        let state = self.lock();
        state.keys.iter().find(|key| key.is(&given)).map(|key| key.by.clone())
    }

    /// Ends the sign-in with this key; returns whether there was one.
    pub(super) fn end(&self, text: &str) -> bool {
        let given = digest(text);
        let mut state = self.lock();
        let before = state.keys.len();
        state.keys.retain(|key| !key.is(&given));
        state.keys.len() < before
    }

    /// Locks the state and drops what has expired.
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent after every statement, so a panic cannot have damaged it.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now_s = now_s();
        state.links.retain(|link| now_s < link.expires_s);
        state.keys.retain(|key| now_s < key.expires_s);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_works_once_and_stands_for_its_makers_key() {
        let sign_ins = SignIns::default();
        let (code, ends_s) = sign_ins.link("local").expect("random").expect("room");
        assert!(ends_s > now_s() && ends_s <= now_s() + LINK_S);
        assert_eq!(sign_ins.exchange("lgp_link_00").expect("random"), None);
        assert_eq!(sign_ins.find(&code), None, "a code is no key");
        let (key, ends_s) = sign_ins.exchange(&code).expect("random").expect("its first use");
        assert_eq!(sign_ins.exchange(&code).expect("random"), None, "its second");
        assert!(ends_s > now_s() + LINK_S);
        assert_eq!(sign_ins.find(&key).as_deref(), Some("local"));
        assert!(sign_ins.end(&key) && !sign_ins.end(&key));
        assert_eq!(sign_ins.find(&key), None);
        for _ in 0..MOST {
            sign_ins.link("local").expect("random").expect("room");
        }
        assert_eq!(sign_ins.link("local").expect("random"), None);
    }
}
