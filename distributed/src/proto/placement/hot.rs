//! A dense summary of the devices, for the scheduler.

use crate::proto::scheduler::service::nanos;
use std::time::Duration;

/// Index of a seat. It is reused after its worker is gone.
pub(crate) type SeatId = usize;

/// The data of a seat that choosing among thousands reads, computed when the seat changes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Hot {
    /// When its worker was last heard, in nanoseconds, at least 1; 0 while the seat takes nothing,
    /// because every slot is taken or the worker takes no tasks.
    pub(crate) heard_ns: u64,
    /// Number of the dispatch that last went to it; 0 for none.
    pub(crate) last_dispatch: u64,
    pub(crate) load: f64,
    /// Service times until a task that came now would be done: those before it in its slot, and
    /// its own.
    pub(crate) turns: f64,
    pub(crate) free_mib: f64,
    pub(crate) power_w: f32,
    /// Free slots; 0 where the worker takes no tasks.
    pub(crate) free: u32,
    /// Free slots among those that models share.
    pub(crate) shared_free: u32,
    /// The seat holds nothing.
    pub(crate) idle: bool,
}

/// The value of [`Hot::heard_ns`].
pub(super) fn heard_ns(free: u32, last_seen: Duration) -> u64 {
    if free == 0 { 0 } else { nanos(last_seen).max(1) }
}

/// Bytes in whole MiB, which `u32` holds up to 4 PiB.
pub(in crate::proto) fn mib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 20).unwrap_or(u32::MAX))
}
