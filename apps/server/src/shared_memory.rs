//! System shared memory of clients on this machine: regions that they register, which inputs are
//! read from and outputs are written to.
//!
//! Bytes are copied by calls on the region's file, which is never mapped: a client that cuts its file
//! short gets an error, where a mapping would end the server.

mod file;
mod request;

pub(crate) use request::{Shared, Slot, Taken};

use crate::access::{Access, Caller};
use crate::fault::Fault;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Regions that are registered at once: each holds a file open.
const REGIONS_MAX: usize = 256;
/// Of these, those of one caller.
const OWN_MAX: usize = 64;
/// Longest name of a region in bytes.
const NAME_BYTES_MAX: usize = 256;

/// What a region is: a part of a file of the system's shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// What `shm_open` was called with.
    pub(crate) key: String,
    /// Where it begins, in bytes.
    #[serde(default)]
    pub(crate) offset: u64,
    /// How long it is.
    pub(crate) byte_size: u64,
}

/// A registered region. Its file stays open until it is unregistered and no request uses it.
#[derive(Debug)]
struct Region {
    place: Place,
    file: File,
}

/// The regions, by their owner and their name: names of others say nothing.
#[derive(Debug, Default)]
pub(crate) struct Regions(Mutex<Known>);

type Known = BTreeMap<(String, String), Arc<Region>>;

impl Regions {
    /// Registers a region for its caller.
    ///
    /// # Errors
    /// 400 for a key that is none, a file that is not there and a place outside of it; 409 for a name
    /// that is taken; 503 beyond the number that there may be.
    pub(crate) fn register(
        &self,
        (caller, access): (&Caller, &Access),
        name: &str,
        place: Place,
    ) -> Result<(), Fault> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let length = name.len();
            return Err(Fault::bad_input(format!(
                "the region's name has {length} bytes, expected 1 to {NAME_BYTES_MAX}"
            )));
        }
        let file = file::open(&place)?;
        let mut known = self.known();
        // Nobody could use or let go of these any more.
        known.retain(|(owner, _), _| access.knows(owner));
        let own = (caller.id().to_owned(), name.to_owned());
        if known.contains_key(&own) {
            return Err(Fault::conflict(format!("a region '{name}' is registered already"))
                .hint("unregister it first"));
        }
        let of_caller = known.keys().filter(|(owner, _)| *owner == own.0).count();
        if known.len() >= REGIONS_MAX || of_caller >= OWN_MAX {
            let message = format!(
                "{of_caller} regions of this caller are registered and {} in all, expected fewer than \
                 {OWN_MAX} and {REGIONS_MAX}",
                known.len()
            );
            return Err(Fault::unavailable("busy", message));
        }
        known.insert(own, Arc::new(Region { place, file }));
        Ok(())
    }

    /// Lets go of a region, or of all that are the caller's. One that is not registered is let go
    /// already.
    pub(crate) fn unregister(&self, caller: &Caller, name: Option<&str>) {
        self.known().retain(|known, _| !is_meant(caller, name, known));
    }

    /// One region, or all that are the caller's; an administrator sees those of others.
    ///
    /// # Errors
    /// 404 for a region that the caller does not have.
    pub(crate) fn list(
        &self,
        caller: &Caller,
        name: Option<&str>,
    ) -> Result<Vec<(String, Place)>, Fault> {
        let known = self.known();
        let seen = known.iter().filter(|(known, _)| is_meant(caller, name, known));
        let seen: Vec<_> =
            seen.map(|((_, name), region)| (name.clone(), region.place.clone())).collect();
        match name {
            Some(name) if seen.is_empty() => Err(unknown(name)),
            _ => Ok(seen),
        }
    }

    /// Bytes of the largest that a caller has; 0 without any.
    fn largest(&self, caller: &Caller) -> usize {
        let known = self.known();
        let own = known.iter().filter(|((owner, _), _)| owner == caller.id());
        let most = own.map(|(_, region)| region.place.byte_size).max();
        usize::try_from(most.unwrap_or(0)).unwrap_or(usize::MAX)
    }

    fn find(&self, caller: &Caller, name: &str) -> Result<Arc<Region>, Fault> {
        let found = self.known().get(&(caller.id().to_owned(), name.to_owned())).cloned();
        found.ok_or_else(|| unknown(name))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // The map is whole after every statement, also after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a call about a region, or about all, is about this one: an administrator's is about those of
/// others, too.
fn is_meant(caller: &Caller, name: Option<&str>, (owner, known): &(String, String)) -> bool {
    (caller.is_admin() || owner == caller.id()) && name.is_none_or(|name| name == known)
}

fn unknown(name: &str) -> Fault {
    let name: String = name.chars().take(64).collect();
    let message = format!("no region '{name}' is registered by this caller");
    Fault::new(StatusCode::NOT_FOUND, "unknown_region", message)
}

/// Refuses a call of a program that does not share this machine's memory.
///
/// # Errors
/// 501.
pub(crate) fn of_this_machine(is_local: bool) -> Result<(), Fault> {
    match is_local {
        true => Ok(()),
        false => Err(Fault::unsupported(
            "shared memory is offered to programs of this machine, over a listener on loopback",
        )),
    }
}
