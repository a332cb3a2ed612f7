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

/// One device of this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceInfo {
    /// The device id, or `pci:0000:01:00.0` for a card that no backend sees.
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
}
