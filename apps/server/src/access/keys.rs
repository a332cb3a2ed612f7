//! API keys: made by administrators, stored as digests, valid until they expire or are revoked.

use crate::error::{Error, Result};
use lgp_distributed::Persisted;
use lgp_sdk::cluster::Pki;
use lgp_sdk::model::Repository;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;

/// The document in the authority's store that holds the keys.
const DOCUMENT: &str = "keys.json";
const REMEDY: &str =
    "restore it from a backup, or delete it, after which every key must be made anew";
/// The most keys that are kept at once, expired keys included.
const KEPT_MAX: usize = 1_000;
/// The most models that one key may be limited to.
const MODELS_MAX: usize = 256;
/// How long an expired key stays in the list.
const REMEMBERED_S: u64 = 30 * 24 * 3600;
/// The prefix of every key. Scanners can find a leaked key in a log or a repository by it.
const PREFIX: &str = "lgp";
/// Bytes of randomness in a key.
const SECRET_BYTES: usize = 32;
/// Bytes of a key's public id.
const ID_BYTES: usize = 6;
/// Longest note about a key, in bytes.
const NOTE_BYTES_MAX: usize = 64;

/// What the owner of a key may do. Each role includes the roles before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyRole {
    /// Health, metadata and inference.
    Infer,
    /// Also tasks, and reading workers, models and totals.
    Submit,
    /// Everything.
    Admin,
}

impl KeyRole {
    /// Every role, the least first.
    pub const ALL: [Self; 3] = [Self::Infer, Self::Submit, Self::Admin];

    /// The role's name as requests write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Submit => "submit",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for KeyRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for KeyRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("'{text}' is no role, expected infer, submit or admin"))
    }
}

/// A request for a new key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// What the key's owner may do.
    pub role: KeyRole,
    /// The key's lifetime in seconds; unlimited when unset.
    #[serde(default)]
    pub ttl_s: Option<u64>,
    /// The models that the key is for; all models when unset.
    #[serde(default)]
    pub models: Option<Vec<String>>,
    /// Requests a second, on average; unlimited when unset.
    #[serde(default)]
    pub rate_per_s: Option<u32>,
    /// Concurrent requests; unlimited when unset.
    #[serde(default)]
    pub concurrent_max: Option<u32>,
    /// The person or program that the key is for.
    #[serde(default)]
    pub note: String,
}

impl NewKey {
    /// A key for every model, without an expiry.
    #[must_use]
    pub fn of(role: KeyRole) -> Self {
        let (ttl_s, models, rate_per_s, concurrent_max) = (None, None, None, None);
        Self { role, ttl_s, models, rate_per_s, concurrent_max, note: String::new() }
    }

    fn check(&self) -> Result<()> {
        let invalid = |what: String| Err(Error::InvalidKey { what });
        for (name, given) in
            [("rate_per_s", self.rate_per_s), ("concurrent_max", self.concurrent_max)]
        {
            if given == Some(0) {
                return invalid(format!("{name} is 0, expected 1 or more"));
            }
        }
        if self.ttl_s == Some(0) {
            return invalid("ttl_s is 0, expected 1 or more".to_owned());
        }
        match self.models.as_deref() {
            Some([]) => return invalid("models is empty, expected a model at least".to_owned()),
            Some(models) if models.len() > MODELS_MAX => {
                return invalid(format!(
                    "{} models given, expected at most {MODELS_MAX}",
                    models.len()
                ));
            }
            Some(_) if self.role == KeyRole::Admin => {
                return invalid("models given for an administrator, who may use all".to_owned());
            }
            _ => {}
        }
        let mut models = self.models.iter().flatten();
        if let Some(name) = models.find(|name| !Repository::is_name(name)) {
            return invalid(format!("model {name:?}, expected the name of a model or an alias"));
        }
        let plain = |c: char| !c.is_control();
        if self.note.len() > NOTE_BYTES_MAX || !self.note.chars().all(plain) {
            let expected =
                format!("expected up to {NOTE_BYTES_MAX} bytes without control characters");
            return invalid(format!("note {:?}: {expected}", self.note));
        }
        Ok(())
    }
}

/// A key as it is listed: without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyInfo {
    /// The key's public id, which is part of its text.
    pub id: String,
    /// What the key's owner may do.
    pub role: KeyRole,
    /// The models that the key is for; `None` for all.
    pub models: Option<Vec<String>>,
    /// Requests a second, on average.
    pub rate_per_s: Option<u32>,
    /// Concurrent requests.
    pub concurrent_max: Option<u32>,
    /// The person or program that the key is for.
    pub note: String,
    /// When the key was made, in seconds since 1970.
    pub created_s: u64,
    /// When the key expires, in seconds since 1970.
    pub expires_s: Option<u64>,
}

impl KeyInfo {
    /// Whether the key has expired.
    #[must_use]
    pub fn is_expired(&self, now_s: u64) -> bool {
        self.expires_s.is_some_and(|expires_s| now_s >= expires_s)
    }
}

/// A key as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    info: KeyInfo,
    /// SHA-256 of the whole key, hexadecimal.
    sha256: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Table {
    keys: Vec<Stored>,
}

/// The API keys of a cluster, stored with its authority.
#[derive(Debug)]
pub struct Keys {
    table: Persisted<Table>,
}

impl Keys {
    /// Opens the keys of an authority.
    ///
    /// # Errors
    /// [`Error::Cluster`] if the keys cannot be read.
    pub fn open(pki: &Pki) -> Result<Self> {
        Ok(Self { table: pki.persisted(DOCUMENT, REMEDY, Table::default())? })
    }

    /// Makes a key. Its text is returned once and stored nowhere. Blocks on the disk.
    ///
    /// # Errors
    /// [`Error::InvalidKey`], [`Error::Random`], and [`Error::Cluster`] if the key cannot be
    /// written; the key then does not exist.
    pub fn create(&self, new: NewKey) -> Result<(KeyInfo, String)> {
        new.check()?;
        let now_s = now_s();
        let secret = Secret::new()?;
        let id = hex::encode(random::<ID_BYTES>()?);
        let text = secret.text(&id);
        let info = KeyInfo {
            id,
            role: new.role,
            models: new.models,
            rate_per_s: new.rate_per_s,
            concurrent_max: new.concurrent_max,
            note: new.note,
            created_s: now_s,
            expires_s: new.ttl_s.map(|ttl_s| now_s.saturating_add(ttl_s)),
        };
        let stored = Stored { info: info.clone(), sha256: hex::encode(digest(&text)) };
        self.table.change(|table| {
            let forgotten_s = now_s.saturating_sub(REMEMBERED_S);
            table.keys.retain(|key| !key.info.is_expired(forgotten_s));
            if table.keys.len() >= KEPT_MAX {
                let what = format!("{KEPT_MAX} keys are kept, revoke some");
                return Err(Error::InvalidKey { what });
            }
            table.keys.push(stored);
            Ok(())
        })??;
        Ok((info, text))
    }

    /// Every key, oldest first, including keys that expired recently.
    #[must_use]
    pub fn list(&self) -> Vec<KeyInfo> {
        self.table.read().keys.iter().map(|key| key.info.clone()).collect()
    }

    /// Revokes a key. Blocks on the disk.
    ///
    /// # Errors
    /// [`Error::UnknownKey`]; [`Error::Cluster`] if the change cannot be written. The key is then
    /// refused until the coordinator ends.
    pub fn revoke(&self, id: &str) -> Result<()> {
        let ((), written) = self.table.insist(|table| {
            let before = table.keys.len();
            table.keys.retain(|key| key.info.id != id);
            if table.keys.len() == before {
                return Err(Error::UnknownKey { id: id.chars().take(64).collect() });
            }
            Ok(())
        })?;
        Ok(written?)
    }

    /// Whether a key with this id is valid now.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.named(id).is_some()
    }

    /// The key with this id, if it is valid now.
    pub(super) fn named(&self, id: &str) -> Option<KeyInfo> {
        let now_s = now_s();
        let is_good = |key: &&Stored| key.info.id == id && !key.info.is_expired(now_s);
        self.table.read().keys.iter().find(is_good).map(|key| key.info.clone())
    }

    /// The key with this text, if it is valid now.
    pub(super) fn find(&self, text: &str) -> Option<KeyInfo> {
        let id = Secret::id(text)?;
        let given = digest(text);
        let table = self.table.read();
        // The id is public, so only the digest is compared in constant time.
        let key = table.keys.iter().find(|key| key.info.id == id)?;
        let mut known = [0; 32];
        hex::decode_to_slice(&key.sha256, &mut known).ok()?;
        let is_same: bool = given.ct_eq(&known).into();
        (is_same && !key.info.is_expired(now_s())).then(|| key.info.clone())
    }
}

/// The secret part of a key.
pub(super) struct Secret([u8; SECRET_BYTES]);

impl Secret {
    pub(super) fn new() -> Result<Self> {
        Ok(Self(random()?))
    }

    /// The whole key: `lgp_ID_SECRET`.
    pub(super) fn text(&self, id: &str) -> String {
        format!("{PREFIX}_{id}_{}", hex::encode(self.0))
    }

    /// The public id in the text of a key.
    fn id(text: &str) -> Option<&str> {
        let mut parts = text.split('_');
        let (prefix, id, secret) = (parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let whole = secret.len() == 2 * SECRET_BYTES && secret.bytes().all(is_hex);
        (prefix == PREFIX && whole && parts.next().is_none()).then_some(id)
    }

    /// Whether a text has the form of a key with this id.
    pub(super) fn is_key(text: &str, id: &str) -> bool {
        Self::id(text) == Some(id)
    }
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(bytes)
}

pub(super) fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::open(&Pki::generate().expect("random numbers")).expect("an empty authority")
    }

    #[test]
    fn a_key_is_good_until_it_is_revoked_and_its_text_is_kept_nowhere() {
        let keys = keys();
        let (info, text) = keys.create(NewKey::of(KeyRole::Submit)).expect("room");
        assert_eq!(text.len(), 4 + 12 + 1 + 64);
        assert_eq!(keys.find(&text).as_ref(), Some(&info));
        assert_eq!(keys.list(), std::slice::from_ref(&info));
        let kept = serde_json::to_string(&*keys.table.read()).expect("plain data");
        let secret = text.rsplit('_').next().expect("three parts");
        assert!(!kept.contains(secret) && kept.contains(&info.id));

        let other =
            format!("{}{}", &text[..text.len() - 1], if text.ends_with('0') { 1 } else { 0 });
        for wrong in ["", "lgp", "lgp__", &text[1..], &text[..80], &other, &text.to_uppercase()] {
            assert_eq!(keys.find(wrong), None, "{wrong}");
        }
        keys.revoke(&info.id).expect("it is there");
        assert_eq!(keys.find(&text), None);
        assert!(matches!(keys.revoke(&info.id), Err(Error::UnknownKey { .. })));
    }

    #[test]
    fn a_key_ends_with_its_time() {
        let keys = keys();
        let brief = NewKey { ttl_s: Some(1), ..NewKey::of(KeyRole::Infer) };
        let (info, text) = keys.create(brief).expect("room");
        assert!(keys.find(&text).is_some());
        assert!(!info.is_expired(info.created_s) && info.is_expired(info.created_s + 1));
        let past = |table: &mut Table| {
            let old = KeyInfo { expires_s: Some(1), ..table.keys[0].info.clone() };
            table.keys[0].info = old;
            Ok::<_, Error>(())
        };
        keys.table.change(past).expect("in memory").expect("no refusal");
        assert_eq!(keys.find(&text), None);
        keys.create(NewKey::of(KeyRole::Infer)).expect("room");
        assert_eq!(keys.list().len(), 1, "what expired long ago is forgotten");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let infer = || NewKey::of(KeyRole::Infer);
        let models = |count| Some(vec!["m".to_owned(); count]);
        for (new, part) in [
            (NewKey { ttl_s: Some(0), ..infer() }, "ttl_s"),
            (NewKey { rate_per_s: Some(0), ..infer() }, "rate_per_s"),
            (NewKey { concurrent_max: Some(0), ..infer() }, "concurrent_max"),
            (NewKey { models: models(0), ..infer() }, "empty"),
            (NewKey { models: models(257), ..infer() }, "257 models"),
            (NewKey { models: Some(vec!["../m".to_owned()]), ..infer() }, "\"../m\""),
            (NewKey { models: models(1), ..NewKey::of(KeyRole::Admin) }, "administrator"),
            (NewKey { note: "\u{1b}[31m".to_owned(), ..infer() }, "note"),
            (NewKey { note: "x".repeat(65), ..infer() }, "note"),
        ] {
            let error = keys().create(new).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn keys_do_not_grow_without_end() {
        let keys = keys();
        for _ in 0..KEPT_MAX {
            keys.create(NewKey::of(KeyRole::Infer)).expect("room");
        }
        let full = keys.create(NewKey::of(KeyRole::Infer)).expect_err("a thousand are kept");
        assert!(full.to_string().contains("revoke some"), "{full}");
    }
}
