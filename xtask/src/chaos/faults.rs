//! The table of faults for a cluster.

mod deck;
mod machine;
mod network;
mod processes;

use super::stage::Stage;
use super::world::Need;
use anyhow::{Context, Result};
pub(super) use deck::Deck;

/// A fault of processes, of the network between them, or of their machine.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// The fault's share among all.
    weight: usize,
    pub(super) kind: Kind,
    pub(super) need: Need,
    pub(super) strike: fn(&mut Stage<'_>) -> Result<()>,
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A process is killed with SIGKILL.
    Kills,
    /// Processes are asked to finish and end; not tried while that would take long.
    Orderly,
    /// Anything else.
    Other,
}

/// All faults. Each is timed from the moment that its name says or, if it is over when the function returns, from its
/// end.
pub(super) const FAULTS: &[&[Fault]] = &[processes::FAULTS, network::FAULTS, machine::FAULTS];

/// The faults of a short run, in order: one of each kind that needs neither root nor packages.
pub(super) const SAMPLE: [&str; 9] = [
    "coordinator killed",
    "worker stopped for 5 to 20 s",
    "every worker killed",
    "coordinator killed, and again as it starts",
    "joined worker cut off",
    "coordinator stopped for 1 to 5 s",
    "joined worker hears nothing",
    "worker stopped for 1 to 5 s",
    "joined worker is not heard",
];

const fn fault(
    name: &'static str,
    weight: usize,
    (kind, need): (Kind, Need),
    strike: fn(&mut Stage<'_>) -> Result<()>,
) -> Fault {
    Fault { name, weight, kind, need, strike }
}

/// The fault of a name.
pub(super) fn by_name(name: &str) -> Result<&'static Fault> {
    let mut all = FAULTS.iter().copied().flatten();
    all.find(|fault| fault.name == name).with_context(|| format!("no fault {name:?}"))
}
