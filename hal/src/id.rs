//! Names of devices: `cpu`, `opencl:0`, `cuda:1`, and their PCI addresses.

use crate::backend::BackendKind;
use crate::error::{Error, Result};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

impl BackendKind {
    /// The name in device ids, settings and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.line().name
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for BackendKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| Error::ParseDevice { given: text.to_owned() })
    }
}

impl Serialize for BackendKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One device: a backend and the device's number there. Written `opencl:0`; the only CPU is
/// written `cpu`. It serializes as that string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The device's family.
    pub backend: BackendKind,
    /// The device's number in its family, from 0.
    pub ordinal: u32,
}

impl DeviceId {
    /// The host's processor.
    pub const CPU: Self = Self { backend: BackendKind::Cpu, ordinal: 0 };
    /// The recording device for tests.
    pub const NULL: Self = Self { backend: BackendKind::Null, ordinal: 0 };

    /// The device `ordinal` of `backend`.
    #[must_use]
    pub fn new(backend: BackendKind, ordinal: u32) -> Self {
        Self { backend, ordinal }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.backend) {
            (Self::CPU | Self::NULL, backend) => f.pad(backend.name()),
            (_, backend) => f.pad(&format!("{backend}:{}", self.ordinal)),
        }
    }
}

impl FromStr for DeviceId {
    type Err = Error;

    /// Reads `cpu`, `null`, `opencl:0`, …; a bare family name is its first device.
    fn from_str(text: &str) -> Result<Self> {
        let error = || Error::ParseDevice { given: text.to_owned() };
        let (family, ordinal) = text.split_once(':').unwrap_or((text, "0"));
        let backend = family.parse().map_err(|_| error())?;
        // `u32::from_str` accepts a plus sign, a device id does not.
        if !ordinal.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        Ok(Self { backend, ordinal: ordinal.parse().map_err(|_| error())? })
    }
}

impl Serialize for DeviceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for DeviceId {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A device's address on the PCI bus; written `0000:01:00.0` as on Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain, 0 on most machines.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device (slot) on the bus.
    pub device: u8,
    /// Function of the device.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.trim().split([':', '.']);
        let mut next = || parts.next().ok_or(());
        let (domain, bus, device, function) = (next()?, next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(());
        }
        let byte = |part| u8::from_str_radix(part, 16).map_err(|_| ());
        Ok(Self {
            domain: u32::from_str_radix(domain, 16).map_err(|_| ())?,
            bus: byte(bus)?,
            device: byte(device)?,
            function: byte(function)?,
        })
    }
}

impl Serialize for PciAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_ids_read_and_write() {
        for (text, backend, ordinal, written) in [
            ("cpu", BackendKind::Cpu, 0, "cpu"),
            ("cpu:0", BackendKind::Cpu, 0, "cpu"),
            ("cpu:1", BackendKind::Cpu, 1, "cpu:1"),
            ("null", BackendKind::Null, 0, "null"),
            ("opencl", BackendKind::OpenCl, 0, "opencl:0"),
            ("opencl:3", BackendKind::OpenCl, 3, "opencl:3"),
            ("vulkan:1", BackendKind::Vulkan, 1, "vulkan:1"),
            ("cuda:0", BackendKind::Cuda, 0, "cuda:0"),
        ] {
            let id: DeviceId = text.parse().expect(text);
            assert_eq!(id, DeviceId::new(backend, ordinal));
            assert_eq!(id.to_string(), written);
            let json = serde_json::to_string(&id).expect("serializes");
            assert_eq!(json, format!("\"{written}\""));
            assert_eq!(serde_json::from_str::<DeviceId>(&json).expect("deserializes"), id);
        }
    }

    #[test]
    fn wrong_device_ids_name_the_accepted_forms() {
        for text in ["", "gpu", "opencl:", "opencl:x", "opencl:+1", "cuda:-1", "cuda:0:1", "CPU"] {
            let error = text.parse::<DeviceId>().expect_err(text);
            assert_eq!(error, Error::ParseDevice { given: text.to_owned() });
            assert!(error.to_string().contains("expected cpu, "), "{error}");
        }
        assert!("opencl:99999999999".parse::<DeviceId>().is_err());
    }

    #[test]
    fn pci_addresses_read_and_write() {
        let address: PciAddress = "0000:0a:1f.2".parse().expect("parses");
        assert_eq!(address, PciAddress { domain: 0, bus: 10, device: 31, function: 2 });
        assert_eq!(address.to_string(), "0000:0a:1f.2");
        for text in ["", "0a:00.0", "0000:0a:00", "0000:zz:00.0", "0000:00:00.0.1"] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}
