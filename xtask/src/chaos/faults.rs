//! What is done to a cluster: a table of faults.

mod deck;
mod machine;
mod network;
mod processes;

use super::stage::Stage;
use super::world::Need;
use anyhow::{Context, Result};
pub(super) use deck::Deck;

/// Something that happens to processes, to the network between them, or to their machine.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// How often it comes up, among all.
    weight: usize,
    pub(super) kind: Kind,
    pub(super) need: Need,
    pub(super) strike: fn(&mut Stage<'_>) -> Result<()>,
}

/// How a fault does what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A process is killed with SIGKILL.
    Kills,
    /// Processes are asked to end, and finish what they have: not while that takes long.
    Orderly,
    /// Anything else.
    Other,
}

/// All of them. The time of each is counted from the moment that its name says, or, for what is
/// over when it returns, from its end.
pub(super) const FAULTS: &[&[Fault]] = &[processes::FAULTS, network::FAULTS, machine::FAULTS];

/// What a short run tries, one after another: one of each kind that takes neither root nor packages.
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
