//! System shared memory of clients on this machine. Clients register regions; the server reads inputs from them and
//! writes outputs to them.
//!
//! The server copies bytes through the region's file and never maps it: if a client truncates the file, the server
//! gets an error, where a mapping would crash it.

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

/// The most registered regions; each holds a file open.
const REGIONS_MAX: usize = 256;
/// The most regions of one caller.
const OWN_MAX: usize = 64;
/// Longest name of a region in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The place of a region: a part of a file in the system's shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The name that was passed to `shm_open`.
    pub(crate) key: String,
    /// Where the region begins in the file, in bytes.
    #[serde(default)]
    pub(crate) offset: u64,
    /// The length of the region, in bytes.
    pub(crate) byte_size: u64,
}

/// A registered region. Its file stays open until the region is unregistered and no request uses it.
#[derive(Debug)]
struct Region {
    place: Place,
    file: File,
}

/// The regions by owner and name, so that callers do not see each other's names.
#[derive(Debug, Default)]
pub(crate) struct Regions(Mutex<Known>);

type Known = BTreeMap<(String, String), Arc<Region>>;

impl Regions {
    /// Registers a region for a caller.
    ///
    /// # Errors
    /// 400 for an invalid key, a missing file or a place outside the file; 409 for a name in use; 503 when there
    /// are too many regions.
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
        // The keys of these owners are gone, so nobody could use or unregister the regions.
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

    /// Unregisters a region, or all of the caller's. Does nothing for a region that is not registered.
    pub(crate) fn unregister(&self, caller: &Caller, name: Option<&str>) {
        self.known().retain(|known, _| !is_meant(caller, name, known));
    }

    /// Lists one region, or all of the caller's; an administrator sees those of others.
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

    /// The size of the caller's largest region in bytes; 0 without any.
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
        // The map is consistent after every statement, so a panic cannot have damaged it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a caller's request for a region, or for all, includes this one. Requests of administrators include
/// regions of others.
fn is_meant(caller: &Caller, name: Option<&str>, (owner, known): &(String, String)) -> bool {
    (caller.is_admin() || owner == caller.id()) && name.is_none_or(|name| name == known)
}

fn unknown(name: &str) -> Fault {
    let name: String = name.chars().take(64).collect();
    let message = format!("no region '{name}' is registered by this caller");
    Fault::new(StatusCode::NOT_FOUND, "unknown_region", message)
}

/// Refuses calls of programs on other machines, which do not share this machine's memory.
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
