//! Signing in with a browser: a link that works once is exchanged for a key that is good for half a day and
//! lives in memory. What the key may do is what the caller may who asked for the link.

use super::caller::Caller;
use super::keys::{KeyInfo, Secret, digest, now_s};
use crate::error::Result;
use crate::fault::Fault;
use std::sync::{Mutex, MutexGuard, PoisonError};
use subtle::ConstantTimeEq;

/// For how many seconds a link works.
const LINK_S: u64 = 120;
/// For how many seconds a key is good that was given for one.
const KEY_S: u64 = 12 * 3600;
/// Links, and keys, that there may be at once.
const MOST: usize = 256;
/// What the public names of such keys begin with. No key that is kept is called so.
const PREFIX: &str = "web-";

/// Links that nobody has used yet, and the keys of those who have.
#[derive(Debug, Default)]
pub(crate) struct SignIns {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    links: Vec<Given>,
    keys: Vec<Given>,
}

/// A link or a key, without its secret.
#[derive(Debug)]
struct Given {
    info: KeyInfo,
    /// The key by which it was asked for: the one is good no longer than the other.
    by: String,
    sha256: [u8; 32],
}

impl Given {
    fn is(&self, given: &[u8; 32]) -> bool {
        self.sha256.ct_eq(given).into()
    }
}

impl SignIns {
    /// A code to be exchanged once within two minutes, and when it ends, in seconds since 1970.
    ///
    /// # Errors
    /// A refusal where too many links are open; [`Error::Random`](crate::Error::Random).
    pub(crate) fn link(&self, caller: &Caller) -> Result<Result<(String, u64), Fault>> {
        let code = Secret::new()?.text("link");
        let id = format!("{PREFIX}{}", hex::encode(super::keys::random::<4>()?));
        let info = caller.sign_in(id, now_s() + LINK_S);
        let mut state = self.lock();
        if state.links.len() >= MOST {
            let fault = Fault::unavailable("busy", format!("{MOST} links wait to be opened"));
            return Ok(Err(fault.hint("each works for two minutes: try again then")));
        }
        let ends_s = now_s() + LINK_S;
        state.links.push(Given { info, by: caller.id().to_owned(), sha256: digest(&code) });
        Ok(Ok((code, ends_s)))
    }

    /// The key that a code is exchanged for, with its secret; none for one that is unknown, used or over.
    ///
    /// # Errors
    /// [`Error::Random`](crate::Error::Random).
    pub(crate) fn exchange(&self, code: &str) -> Result<Option<(KeyInfo, String)>> {
        let (secret, given) = (Secret::new()?, digest(code));
        let mut state = self.lock();
        let Some(at) = state.links.iter().position(|link| link.is(&given)) else { return Ok(None) };
        let Given { mut info, by, .. } = state.links.swap_remove(at);
        if state.keys.len() >= MOST {
            state.keys.remove(0);
        }
        info.created_s = now_s();
        info.expires_s = Some(now_s() + KEY_S);
        let text = secret.text(&info.id);
        state.keys.push(Given { info: info.clone(), by, sha256: digest(&text) });
        Ok(Some((info, text)))
    }

    /// The key that a text is, and the one by which it was asked for.
    pub(super) fn find(&self, text: &str) -> Option<(KeyInfo, String)> {
        let given = digest(text);
        let state = self.lock();
        let key = state.keys.iter().find(|key| key.is(&given))?;
        Some((key.info.clone(), key.by.clone()))
    }

    /// By which key the one of this name was asked for, if it is good.
    pub(super) fn asked_by(&self, id: &str) -> Option<String> {
        let state = self.lock();
        state.keys.iter().find(|key| key.info.id == id).map(|key| key.by.clone())
    }

    /// Ends a key of this name; whether there was one.
    pub(crate) fn end(&self, id: &str) -> bool {
        let mut state = self.lock();
        let before = state.keys.len();
        state.keys.retain(|key| key.info.id != id);
        state.keys.len() < before
    }

    /// The state without what is over.
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every step leaves it whole.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now_s = now_s();
        state.links.retain(|link| !link.info.is_expired(now_s));
        state.keys.retain(|key| !key.info.is_expired(now_s));
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::KeyRole;

    #[test]
    fn a_link_works_once_and_gives_what_its_maker_may() {
        let sign_ins = SignIns::default();
        let (code, ends_s) = sign_ins.link(&Caller::owner()).expect("random").expect("room");
        assert!(ends_s > now_s() && ends_s <= now_s() + LINK_S);
        assert!(sign_ins.exchange("lgp_link_00").expect("random").is_none());
        assert!(sign_ins.find(&code).is_none(), "a code is no key");
        let (info, text) = sign_ins.exchange(&code).expect("random").expect("its first use");
        assert!(sign_ins.exchange(&code).expect("random").is_none(), "its second");
        assert_eq!((info.role, info.models.as_ref()), (KeyRole::Admin, None));
        assert!(info.expires_s.is_some_and(|ends_s| ends_s > now_s() + LINK_S));
        let (found, by) = sign_ins.find(&text).expect("it is good");
        assert_eq!((found.id.as_str(), by.as_str()), (info.id.as_str(), "local"));
        assert_eq!(sign_ins.asked_by(&info.id).as_deref(), Some("local"));
        assert!(sign_ins.end(&info.id) && !sign_ins.end(&info.id));
        assert!(sign_ins.find(&text).is_none());

        let limited = KeyInfo { models: Some(vec!["m".to_owned()]), role: KeyRole::Submit, ..info };
        let (code, _) = sign_ins.link(&Caller::of(limited)).expect("random").expect("room");
        let (info, _) = sign_ins.exchange(&code).expect("random").expect("its first use");
        assert_eq!((info.role, info.models), (KeyRole::Submit, Some(vec!["m".to_owned()])));
        for _ in 0..MOST {
            sign_ins.link(&Caller::owner()).expect("random").expect("room");
        }
        assert!(sign_ins.link(&Caller::owner()).expect("random").is_err());
    }
}
