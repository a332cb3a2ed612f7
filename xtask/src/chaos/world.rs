//! The faults that the test machine permits on itself: separate networks, a disk of limited size, set clocks. Each
//! needs root or a package, and is left out without it.

pub(super) mod clock;
pub(crate) mod disk;
pub(super) mod island;

use super::process::Site;
use crate::report::Skip;
use anyhow::Result;
use clock::Clocks;
use disk::Disk;
use island::Island;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

/// The size of a disk with room for every result of a run. Blocks are allocated as they are written.
const DISK_BYTES: u64 = 32 << 30;

/// What a fault needs besides processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// A machine in a network namespace.
    Island,
    Disk,
    Clocks,
}

/// The available means.
#[derive(Default)]
pub(super) struct World {
    pub(super) island: Option<Island>,
    pub(super) disk: Option<Disk>,
    pub(super) clocks: Option<Clocks>,
    /// The missing means, with reasons.
    pub(super) skipped: Vec<Skip>,
}

impl World {
    /// The means before a coordinator in `folder` starts.
    pub(super) fn whole(folder: &Path) -> Result<Self> {
        let mut world = Self::default();
        disk::unmount(&Site::data_in(folder));
        match island::some(1) {
            Ok(islands) => world.island = islands.into_iter().next(),
            Err(skip) => world.skipped.push(skip),
        }
        Ok(world)
    }

    /// Where the coordinator must listen for workers.
    pub(super) fn ip(&self) -> IpAddr {
        match self.island {
            Some(_) => Ipv4Addr::UNSPECIFIED.into(),
            None => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Gives a site its disk and its clocks.
    pub(super) fn furnish(&mut self, site: &mut Site) -> Result<()> {
        match Disk::of_file(&site.folder.join("disk"), site.data(), DISK_BYTES) {
            Ok(disk) => self.disk = Some(disk),
            Err(error) => self.skipped.push(Skip::new("mount", format!("{error:#}"))),
        }
        match Clocks::new(&site.folder)? {
            Ok(clocks) => {
                clocks.show(site);
                self.clocks = Some(clocks);
            }
            Err(skip) => self.skipped.push(skip),
        }
        Ok(())
    }

    /// Whether a fault's needs are available.
    pub(super) fn has(&self, need: Need) -> bool {
        match need {
            Need::Nothing => true,
            Need::Island => self.island.is_some(),
            Need::Disk => self.disk.is_some(),
            Need::Clocks => self.clocks.is_some(),
        }
    }
}
