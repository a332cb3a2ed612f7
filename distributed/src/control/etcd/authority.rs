//! Leader election and documents in etcd.

use super::client::{Client, REQUEST_BYTES, below, delete, has, put, range, too_large, unchanged};
use super::heart::{Heart, lead_of};
use super::proto::KeyValue;
use super::{FORMAT, Keys, LEASE, Trouble};
use crate::control::authority::{Authority, Members};
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long to wait for an unrenewed lead to end: etcd checks twice a second for expired leases.
const WAIT: Duration = LEASE.saturating_add(Duration::from_secs(1));
/// How often a write without an answer is tried.
const TRIES: usize = 3;
/// How often a number is requested when others take it first or the lease ends meanwhile.
const NUMBERS: usize = 50;

/// An authority that coordinators on several machines share.
#[derive(Debug)]
pub(crate) struct EtcdAuthority {
    pub(super) keys: Keys,
    pub(super) client: Arc<Client>,
    /// A unique name of this coordinator.
    pub(super) holder: String,
    pub(super) engine: String,
    pub(super) heart: Heart,
    /// The revision of each document when it was last read or written here.
    versions: Mutex<HashMap<String, i64>>,
}

/// The latest number that was issued, and the revision of its key.
pub(super) struct Counted {
    number: u64,
    pub(super) revision: i64,
}

impl EtcdAuthority {
    /// Connects, for the cluster with this fingerprint.
    ///
    /// # Errors
    /// [`Error::File`], with the reason why etcd cannot be used.
    pub(crate) fn open(keys: Keys, fingerprint: &str) -> Result<Self> {
        let failed = |trouble| failed("open", &keys, trouble);
        let client = Arc::new(Client::new(&keys).map_err(failed)?);
        introduce(&client, &keys, fingerprint).map_err(failed)?;
        let (version, answering, members) = client.engine().map_err(failed)?;
        let engine = format!("etcd {version}, {answering} of {members} members answer");
        let holder = hex::encode(rand::random::<[u8; 16]>());
        let heart = Heart::start(&client, &keys, &holder).map_err(failed)?;
        Ok(Self { keys, client, holder, engine, heart, versions: Mutex::default() })
    }

    pub(super) fn failed(&self, what: &'static str) -> impl Fn(Trouble) -> Error {
        let keys = self.keys.clone();
        move |trouble| failed(what, &keys, trouble)
    }

    fn versions(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        // Every step leaves the map consistent.
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a number that no other coordinator has. `take` writes it in one transaction with its
    /// purpose, if the counter is unchanged, and returns whether it did.
    pub(super) fn number(
        &self,
        now_ms: u64,
        take: impl Fn(&Counted, u64, i64) -> Result<bool, Trouble>,
    ) -> Result<u64, Trouble> {
        for _ in 0..NUMBERS {
            let [found] = self.client.look([range(self.keys.key("counter"))])?;
            let counted = counted(found.first())?;
            let number = now_ms.max(counted.number + 1);
            match take(&counted, number, self.heart.lease()) {
                Ok(true) => return Ok(number),
                // Another coordinator was faster, or the answer was lost; then a number stays
                // unused.
                Ok(false) => {}
                Err(Trouble::Ended) => self.heart.renew(),
                Err(trouble) => return Err(trouble),
            }
        }
        Err(Trouble::Refused(format!("others took {NUMBERS} numbers first")))
    }

    /// Waits while another coordinator leads, but no longer than an unrenewed lease lasts.
    fn wait(&self) -> Result<(), Trouble> {
        let end = Instant::now() + WAIT;
        while self.is_led_by_another()?.0 && Instant::now() < end {
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Whether another coordinator leads, and the revision of the lead's key.
    fn is_led_by_another(&self) -> Result<(bool, i64), Trouble> {
        let [found] = self.client.look([range(self.keys.key("lead"))])?;
        let holder = self.holder.as_bytes();
        let lead = found.first();
        Ok((
            lead.is_some_and(|kv| !kv.value.ends_with(holder)),
            lead.map_or(0, |kv| kv.mod_revision),
        ))
    }

    /// Takes the lead if it is free, and returns the epoch and its lease; `None` if another leads.
    fn take(&self, now_ms: u64) -> Result<Option<(u64, i64)>, Trouble> {
        let (led, leased) = (std::cell::Cell::new(false), std::cell::Cell::new(0));
        let take = |counted: &Counted, number: u64, lease: i64| {
            let (is_led, revision) = self.is_led_by_another()?;
            led.set(is_led);
            leased.set(lease);
            if is_led {
                return Ok(true);
            }
            let (counter, lead) = (self.keys.key("counter"), self.keys.key("lead"));
            let compare = vec![
                unchanged(counter.clone(), counted.revision),
                unchanged(lead.clone(), revision),
            ];
            let number_text = number.to_string();
            let ops = vec![
                put(counter, number_text.as_bytes(), 0),
                put(lead, &lead_of(number, &self.holder), lease),
            ];
            Ok(self.client.transact(compare, ops, Vec::new())?.0)
        };
        let taken = self.number(now_ms, take)?;
        Ok((!led.get()).then_some((taken, leased.get())))
    }

    fn look_up(&self, document: &str) -> Result<Option<KeyValue>, Trouble> {
        let [found] = self.client.look([range(self.keys.document(document))])?;
        Ok(found.into_iter().next())
    }

    /// Writes a document after `revision`, with retries; returns the new revision.
    fn make(&self, epoch: u64, revision: i64, name: &str, bytes: &[u8]) -> Result<i64> {
        let failed = self.failed("write");
        let (lead, document) = (self.keys.key("lead"), self.keys.document(name));
        let own = lead_of(epoch, &self.holder);
        let ranges = || vec![range(lead.clone()), range(document.clone())];
        let mut last = None;
        for _ in 0..TRIES {
            let compare = vec![has(lead.clone(), &own), unchanged(document.clone(), revision)];
            let mut success = vec![put(document.clone(), bytes, 0)];
            success.extend(ranges());
            let (made, mut found) = match self.client.transact(compare, success, ranges()) {
                Ok(done) => done,
                Err(trouble @ Trouble::Away(_)) => {
                    last = Some(trouble);
                    continue;
                }
                Err(trouble) => return Err(failed(trouble)),
            };
            let document = found.pop().and_then(|mut kvs| kvs.pop());
            let standing = found.pop().and_then(|mut kvs| kvs.pop());
            // An earlier try may have succeeded without an answer: only the leader writes.
            let leads = standing.is_some_and(|kv| kv.value == own);
            let is_there = document.as_ref().is_some_and(|kv| kv.value == bytes);
            return match document {
                Some(kv) if made || (leads && is_there) => Ok(kv.mod_revision),
                _ if !leads => Err(Error::Deposed { path: self.locate(name), epoch }),
                _ => {
                    let what = "another has changed it since it was read here: start again";
                    Err(failed(Trouble::Refused(what.to_owned())))
                }
            };
        }
        Err(failed(last.unwrap_or(Trouble::Ended)))
    }
}

/// The names of documents, in order.
pub(super) fn names(keys: &Keys, found: &[KeyValue]) -> Vec<String> {
    let prefix = keys.document("");
    let names = found.iter().filter_map(|kv| kv.key.strip_prefix(prefix.as_slice()));
    let mut names: Vec<String> =
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    names
}

pub(super) fn failed(what: &'static str, keys: &Keys, trouble: Trouble) -> Error {
    Error::file(what, keys.label(), std::io::Error::other(trouble.text()))
}

fn counted(found: Option<&KeyValue>) -> Result<Counted, Trouble> {
    let Some(kv) = found else { return Ok(Counted { number: 0, revision: 0 }) };
    let number = std::str::from_utf8(&kv.value).ok().and_then(|text| text.parse().ok());
    let odd = || Trouble::Refused("its key counter has no number".to_owned());
    Ok(Counted { number: number.ok_or_else(odd)?, revision: kv.mod_revision })
}

/// Marks the keys as this cluster's, or refuses those of another cluster or of a later program.
fn introduce(client: &Client, keys: &Keys, own: &str) -> Result<(), Trouble> {
    let (format, cluster) = (keys.key("format"), keys.key("cluster"));
    let ranges = vec![range(format.clone()), range(cluster.clone())];
    let compare = vec![unchanged(format.clone(), 0), unchanged(cluster.clone(), 0)];
    let puts = vec![put(format, FORMAT.as_bytes(), 0), put(cluster, own.as_bytes(), 0)];
    let (is_new, found) = client.transact(compare, puts, ranges)?;
    if is_new {
        return Ok(());
    }
    let text = |at: usize| {
        let kv = found.get(at).and_then(|kvs| kvs.first());
        kv.map(|kv| String::from_utf8_lossy(&kv.value).into_owned()).unwrap_or_default()
    };
    let (format, found) = (text(0), text(1));
    if format != FORMAT {
        return Err(Trouble::Refused(format!(
            "its keys have version {format:?}, expected {FORMAT}"
        )));
    }
    if found != own {
        return Err(Trouble::Refused(format!(
            "it belongs to the cluster with the fingerprint {found}, not {own}: choose another name, or \
             give this machine that cluster's file pki/authority.pem"
        )));
    }
    Ok(())
}

impl Authority for EtcdAuthority {
    fn lead(&self, now_ms: u64) -> Result<u64> {
        let failed = self.failed("take the lead in");
        self.wait().map_err(&failed)?;
        let taken = self.take(now_ms).map_err(&failed)?;
        let (epoch, lease) = taken.ok_or_else(|| Error::Led { path: self.keys.label() })?;
        self.heart.take(epoch, lease);
        Ok(epoch)
    }

    fn resign(&self, epoch: u64) {
        if self.heart.lead() != Some(epoch) {
            return;
        }
        self.heart.give_up();
        let lead = self.keys.key("lead");
        let compare = vec![has(lead.clone(), &lead_of(epoch, &self.holder))];
        // A lead that cannot be given up ends with its lease.
        let _ = self.client.transact(compare, vec![delete(lead)], Vec::new());
    }

    fn holds(&self, epoch: u64) -> bool {
        self.heart.lead() == Some(epoch)
    }

    fn holds_now(&self, epoch: u64) -> bool {
        self.heart.leads_now(epoch)
    }

    fn members(&self) -> Option<&dyn Members> {
        Some(self)
    }

    fn read(&self, document: &str) -> Result<Option<Vec<u8>>> {
        let found = self.look_up(document).map_err(self.failed("read"))?;
        let revision = found.as_ref().map_or(0, |kv| kv.mod_revision);
        self.versions().insert(document.to_owned(), revision);
        Ok(found.map(|kv| kv.value))
    }

    fn write(&self, epoch: u64, document: &str, bytes: &[u8]) -> Result<()> {
        if bytes.len() > REQUEST_BYTES {
            let text = format!("{document} has {} bytes: {}", bytes.len(), too_large());
            return Err(self.failed("write")(Trouble::Refused(text)));
        }
        let known = self.versions().get(document).copied();
        let revision = match known {
            Some(revision) => revision,
            None => {
                let found = self.look_up(document).map_err(self.failed("read"))?;
                found.map_or(0, |kv| kv.mod_revision)
            }
        };
        let written = self.make(epoch, revision, document, bytes)?;
        self.versions().insert(document.to_owned(), written);
        Ok(())
    }

    fn documents(&self) -> Result<Vec<String>> {
        let [found] =
            self.client.look([below(self.keys.document(""))]).map_err(self.failed("read"))?;
        Ok(names(&self.keys, &found))
    }

    fn locate(&self, document: &str) -> PathBuf {
        self.keys.label().join(document)
    }
}
