//! Transfers between the devices of a set.

use super::arrival::Arrival;
use super::link::Link;
use super::pace::Pace;
use super::place::Place;
use super::schedule::Schedule;
use super::stats::LinkStats;
use crate::error::{Error, Result};
use lgp_hal::Device;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

/// How transfers are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferConfig {
    /// The most bytes of a chunk. A transfer of higher priority waits for two chunks at most; each
    /// link keeps two chunks of pinned host memory.
    pub chunk_bytes: usize,
    /// The most that each link sends; `None` is no limit. Copies within a device are not limited.
    pub bytes_per_second_max: Option<NonZeroU64>,
}

impl Default for TransferConfig {
    /// Chunks of 1 MiB, no limit.
    fn default() -> Self {
        Self { chunk_bytes: 1 << 20, bytes_per_second_max: None }
    }
}

/// Carries bytes between devices, each direction between two of them by a thread of its own.
/// Devices are numbered as they were given. Dropping it cancels the transfers that have not been
/// sent.
///
/// Bytes go through pinned host memory, and within one device directly. Of the transfers that wait
/// for one link, the highest priority is served first, a chunk at a time. A transfer whose turn has
/// come keeps its link until its places are ready.
///
/// ```
/// use lgp_compute::comm::{Place, TransferConfig, Transfers};
/// let device = lgp_hal::open(lgp_hal::DeviceId::CPU)?;
/// let transfers = Transfers::new(vec![device.clone(), device.clone()], TransferConfig::default());
/// let (here, there) = (device.allocate(4)?, device.allocate(4)?);
/// let mut queue = device.queue()?;
/// queue.write(&*here, 0, &[1, 2, 3, 4])?;
///
/// transfers.send(Place::new(0, here), Place::new(1, there.clone()), 4, 0)?.wait()?;
///
/// let mut bytes = [0; 4];
/// queue.read(&*there, 0, &mut bytes)?;
/// assert_eq!(bytes, [1, 2, 3, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Transfers {
    devices: Vec<Arc<dyn Device>>,
    config: TransferConfig,
    links: Mutex<HashMap<(usize, usize), Link>>,
}

impl Transfers {
    /// Transfers between these devices. Threads and host memory are taken at the first use of a
    /// link.
    #[must_use]
    pub fn new(devices: Vec<Arc<dyn Device>>, config: TransferConfig) -> Self {
        Self { devices, config, links: Mutex::default() }
    }

    /// Queues the copying of `bytes` bytes, and returns at once. A higher `priority` goes first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a device that is not there; [`Error::Device`] for a place that
    /// reaches beyond its buffer, and where a link cannot be set up.
    pub fn send(&self, from: Place, to: Place, bytes: usize, priority: u8) -> Result<Arrival> {
        for place in [&from, &to] {
            let capacity = place.buffer.bytes();
            if place.offset.checked_add(bytes).is_none_or(|end| end > capacity) {
                let offset = place.offset;
                return Err(lgp_hal::Error::OutOfBounds { offset, bytes, capacity }.into());
            }
        }
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (from.device, to.device);
        let link = match links.entry(key) {
            std::collections::hash_map::Entry::Occupied(link) => link.into_mut(),
            std::collections::hash_map::Entry::Vacant(none) => none.insert(self.link(key)?),
        };
        Ok(link.send(from, to, bytes, priority))
    }

    fn link(&self, (from, to): (usize, usize)) -> Result<Link> {
        let device = |number: usize| {
            let count = self.devices.len();
            let missing = format!("device {number} is asked for, there are {count}");
            self.devices.get(number).ok_or_else(|| Error::invalid(missing).of("Transfers"))
        };
        let (chunk_bytes, pace) = match from == to {
            // In one chunk, so that the device sees whether the copy overlaps itself.
            true => (usize::MAX, None),
            false => {
                let chunk_bytes = self.config.chunk_bytes.max(1);
                let rate = self.config.bytes_per_second_max;
                (chunk_bytes, rate.map(|rate| Pace::new(rate, chunk_bytes)))
            }
        };
        let schedule = Schedule::new(chunk_bytes, pace);
        Link::new((from, device(from)?), (to, device(to)?), chunk_bytes, schedule)
    }

    /// The finished and the waiting transfers of each link that was used, ordered by its devices.
    #[must_use]
    pub fn stats(&self) -> Vec<LinkStats> {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stats: Vec<LinkStats> = links.values().map(Link::stats).collect();
        stats.sort_by_key(|link| (link.from, link.to));
        stats
    }
}
