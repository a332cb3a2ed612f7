//! Faults that last for a while and are then ended.

use super::{ISLANDER, RELAYED, Stage};
use crate::chaos::process::signal;
use crate::chaos::world::island::Direction;
use crate::relay::Weather;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// A fault that lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chaos) enum Trouble {
    /// A process is stopped.
    Stopped(u32),
    /// The network of the machine behind the relay is bad.
    Weather,
    /// The link to the machine on the island is cut.
    Link,
}

/// Troubles, and when each is over.
#[derive(Debug, Default)]
pub(super) struct Lasting(Vec<(Trouble, Instant)>);

impl Stage<'_> {
    /// Begins a fault. A fault that is present already only gets a new end.
    fn begin(&mut self, trouble: Trouble, time: Duration) {
        self.lasting.0.retain(|(other, _)| *other != trouble);
        self.lasting.0.push((trouble, Instant::now() + time));
        self.load.hurt();
    }

    /// Stops a process for a while.
    pub(in crate::chaos) fn stop(&mut self, pid: u32, time: Duration) {
        signal(pid, Signal::STOP);
        self.begin(Trouble::Stopped(pid), time);
    }

    /// Changes the weather for the machine behind the relay, for a while.
    pub(in crate::chaos) fn weather(&mut self, weather: Weather, time: Duration) {
        self.relay.set(weather);
        self.begin(Trouble::Weather, time);
    }

    /// Cuts the link to the machine on the island, for a while.
    pub(in crate::chaos) fn cut(&mut self, direction: Direction, time: Duration) -> Result<()> {
        let island = self.world.island.as_ref().context("an island")?;
        island.heal()?;
        island.cut(direction)?;
        self.begin(Trouble::Link, time);
        Ok(())
    }

    /// Processes that are stopped.
    pub(in crate::chaos) fn stopped(&self) -> Vec<u32> {
        let pid = |(trouble, _): &(Trouble, Instant)| match trouble {
            Trouble::Stopped(pid) => Some(*pid),
            Trouble::Weather | Trouble::Link => None,
        };
        self.lasting.0.iter().filter_map(pid).collect()
    }

    pub(super) fn is_stopped(&self, pid: u32) -> bool {
        self.stopped().contains(&pid)
    }

    /// Whether a lasting fault is present.
    pub(in crate::chaos) fn is_troubled(&self) -> bool {
        !self.lasting.0.is_empty()
    }

    /// Ends the faults whose time is over.
    pub(in crate::chaos) fn heal_due(&mut self) -> Result<()> {
        let now = Instant::now();
        self.heal(|_, until| until <= now)
    }

    /// Waits for the end of all lasting faults.
    pub(in crate::chaos) fn heal_all(&mut self) -> Result<()> {
        while let Some(until) = self.lasting.0.iter().map(|(_, until)| *until).min() {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            self.heal_due()?;
        }
        Ok(())
    }

    /// Ends at once the faults between a machine and the coordinator.
    pub(super) fn free_way(&mut self, at: usize) -> Result<()> {
        self.heal(|trouble, _| match trouble {
            Trouble::Stopped(_) => false,
            Trouble::Weather => at == RELAYED,
            Trouble::Link => at == ISLANDER,
        })
    }

    fn heal(&mut self, which: impl Fn(Trouble, Instant) -> bool) -> Result<()> {
        let all = std::mem::take(&mut self.lasting.0);
        let (over, left): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(trouble, until)| which(*trouble, *until));
        self.lasting.0 = left;
        for (trouble, _) in over {
            match trouble {
                Trouble::Stopped(pid) => signal(pid, Signal::CONT),
                Trouble::Weather => self.relay.set(Weather::CALM),
                Trouble::Link => self.world.island.as_ref().context("an island")?.heal()?,
            }
        }
        Ok(())
    }
}
