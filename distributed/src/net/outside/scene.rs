//! What a simulation provides to the network code that runs on its threads.

use super::{Bound, GlueFault};
use rand::rngs::Xoshiro256PlusPlus;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A simulated run, in place of the system below.
pub trait Scene: Send + Sync {
    /// A UDP socket at an address.
    fn bind(&self, addr: SocketAddr) -> io::Result<Bound>;

    /// How late a thread that may block begins, if it is late; its work takes no simulated time.
    fn thread_is_late(&self) -> Option<Duration>;

    /// Starts a thread that runs models.
    fn run_models(self: Arc<Self>, work: Box<dyn FnOnce() + Send>);

    /// Wall time in whole milliseconds.
    fn unix_ms(&self) -> u64;

    /// A random generator that no other code draws from.
    fn rng(&self) -> Xoshiro256PlusPlus;

    /// Until when a machine stands still, if it does.
    fn stands_still(&self, machine: u8) -> Option<Instant>;

    /// Whether the network code has the fault.
    fn is_planted(&self, fault: GlueFault) -> bool;
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Scene>>> = const { RefCell::new(None) };
}

/// From now on this thread belongs to a run, or to none.
pub fn set_scene(scene: Option<Arc<dyn Scene>>) {
    CURRENT.set(scene);
}

/// The run that this thread belongs to.
pub(super) fn current() -> Option<Arc<dyn Scene>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Whether the run of this thread has the fault.
pub(crate) fn is_planted(fault: GlueFault) -> bool {
    CURRENT.with_borrow(|scene| scene.as_ref().is_some_and(|scene| scene.is_planted(fault)))
}
