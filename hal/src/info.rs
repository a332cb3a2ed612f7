//! What is told of one device: to people, to scripts and to the choice of a device.

use crate::amd::sysfs::Card;
use crate::caps::Caps;
use crate::id::DeviceId;
use crate::telemetry::Telemetry;
use serde::Serialize;

/// The outcome of a device's self-test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelfTest {
    /// It calculates and moves bytes rightly.
    Passed,
    /// It does not, or does not open.
    Failed,
    /// There is no driver through which to test it.
    NotRun,
}

/// One device of this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceInfo {
    /// The device id, or `pci:0000:01:00.0` for a card that no backend sees.
    pub id: String,
    /// The id to open it by; `None` for a card that no backend sees.
    #[serde(skip)]
    pub device: Option<DeviceId>,
    /// The name for people.
    pub name: String,
    /// The backend that drives it, or would.
    pub backend: String,
    /// Its memory, all of it.
    pub memory_bytes: Option<u64>,
    /// Whether models can run on it now.
    pub usable: bool,
    /// Why not; `None` for a usable device.
    pub reason: Option<String>,
    /// The line to type or to set so that it gets usable, where there is one.
    pub hint: Option<String>,
    /// How its self-test went.
    pub self_test: SelfTest,
    /// What it can do.
    pub caps: Caps,
    /// What its sensors say.
    pub telemetry: Option<Telemetry>,
    /// The card as the kernel sees it.
    pub card: Option<Card>,
}
