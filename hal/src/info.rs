//! The description of one device: for people, for scripts, and for the choice of a device.

use crate::amd::sysfs::Card;
use crate::caps::Caps;
use crate::id::DeviceId;
use crate::telemetry::Telemetry;
use serde::Serialize;

/// The outcome of a device's self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelfTest {
    /// The device calculates and moves bytes correctly.
    Passed,
    /// The device does not, or cannot be opened.
    Failed,
    /// There is no driver to test the device with.
    NotRun,
}

/// One way to use a device: a backend that sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Way {
    /// The id that [`crate::open`] takes.
    pub id: DeviceId,
    /// The device's name in this way.
    pub name: String,
    /// The driver and its version.
    pub driver: String,
    /// Whether models can run on the device in this way now.
    pub usable: bool,
    /// Why not; `None` for a usable way.
    pub reason: Option<String>,
    /// The line to type or to set to make the way usable, if there is one.
    pub hint: Option<String>,
    /// The outcome of the self-test.
    pub self_test: SelfTest,
}

/// One device of this machine. A card that several backends see is one device with several ways.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceInfo {
    /// The id of the device's best way, or `pci:0000:01:00.0` for a card that no backend sees.
    pub id: String,
    /// The id that [`crate::open`] takes; `None` for a card that no backend sees.
    #[serde(skip)]
    pub device: Option<DeviceId>,
    /// The name for people.
    pub name: String,
    /// The backend that drives the device, or would drive it.
    pub backend: String,
    /// All memory of the device.
    pub memory_bytes: Option<u64>,
    /// Whether models can run on the device now.
    pub usable: bool,
    /// Why the device is not usable; `None` for a usable device.
    pub reason: Option<String>,
    /// The line to type or to set to make the device usable, if there is one.
    pub hint: Option<String>,
    /// The outcome of the self-test.
    pub self_test: SelfTest,
    /// The device's capabilities.
    pub caps: Caps,
    /// The device's sensor values.
    pub telemetry: Option<Telemetry>,
    /// The card as the kernel sees it.
    pub card: Option<Card>,
    /// The ways to use the device, the best first; none for a card that no backend sees.
    pub ways: Vec<Way>,
}

impl DeviceInfo {
    /// Whether an id means this device, in any of its ways.
    #[must_use]
    pub fn is(&self, id: DeviceId) -> bool {
        self.device == Some(id) || self.ways.iter().any(|way| way.id == id)
    }
}
