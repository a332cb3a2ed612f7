//! Opens a device by its id.

use crate::backend::{BACKENDS, Backend, BackendKind, Line};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::self_test::self_test;
use std::sync::Arc;

/// The backend of a family.
///
/// # Errors
/// [`Error::BackendNotCompiled`].
pub(crate) fn backend_of(table: &[Line], kind: BackendKind) -> Result<&'static dyn Backend> {
    let line = table.iter().find(|line| line.kind == kind);
    let feature = kind.line().feature;
    line.and_then(|line| line.backend).ok_or(Error::BackendNotCompiled { backend: kind, feature })
}

/// Opens a device and tests that it calculates correctly.
///
/// # Errors
/// [`Error::BackendNotCompiled`], [`Error::NoDevice`] with the reason, [`Error::SelfTest`] for a
/// device that must not be used, or the driver's refusal.
pub fn open(id: DeviceId) -> Result<Arc<dyn Device>> {
    open_in(BACKENDS, id)
}

/// [`open`] with another table.
pub(crate) fn open_in(table: &[Line], id: DeviceId) -> Result<Arc<dyn Device>> {
    let device = backend_of(table, id.backend)?.open(id.ordinal)?;
    self_test(&*device)?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Probe;
    use crate::backend::null::NullDevice;
    use crate::buffer::Buffer;
    use crate::pass_on;
    use crate::queue::Queue;

    /// A backend whose device loses a bit in every copy on the device.
    struct Leaking;

    #[derive(Debug)]
    struct LeakingDevice(NullDevice);

    struct LeakingQueue(Box<dyn Queue>);

    impl Backend for Leaking {
        fn probe(&self) -> Probe {
            Probe::default()
        }
        fn open(&self, _ordinal: u32) -> Result<Arc<dyn Device>> {
            Ok(Arc::new(LeakingDevice(NullDevice::new(None))))
        }
    }

    impl Device for LeakingDevice {
        fn id(&self) -> DeviceId {
            DeviceId::new(BackendKind::Cuda, 0)
        }
        fn name(&self) -> &str {
            "leaking device"
        }
        pass_on!(0: caps, allocate, pinned, compile, load, arithmetic);

        fn queue(&self) -> Result<Box<dyn Queue>> {
            Ok(Box::new(LeakingQueue(self.0.queue()?)))
        }
    }

    impl Queue for LeakingQueue {
        pass_on!(
            0: device, write, read, write_async, read_async, launch, record, wait_for, submit,
            finish, as_any_mut
        );

        fn copy(
            &mut self,
            from: &dyn Buffer,
            from_offset: usize,
            to: &dyn Buffer,
            to_offset: usize,
            bytes: usize,
        ) -> Result<()> {
            self.0.copy(from, from_offset, to, to_offset, bytes)?;
            let mut byte = [0];
            self.0.read(to, to_offset + bytes / 2, &mut byte)?;
            self.0.write(to, to_offset + bytes / 2, &[byte[0] ^ 4])
        }
    }

    #[test]
    fn a_device_that_corrupts_is_not_opened() {
        let table = [Line { backend: Some(&Leaking), ..*BackendKind::Cuda.line() }];
        let error = open_in(&table, DeviceId::new(BackendKind::Cuda, 0)).expect_err("it corrupts");
        assert!(matches!(error, Error::SelfTest { op: "transfers", .. }), "{error}");
    }

    #[test]
    fn a_missing_backend_names_its_feature() {
        let table = [Line { backend: None, ..*BackendKind::OpenCl.line() }];
        let error = open_in(&table, DeviceId::new(BackendKind::OpenCl, 0)).expect_err("missing");
        let expected = Error::BackendNotCompiled { backend: BackendKind::OpenCl, feature: "rocm" };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("rocm"), "{error}");
    }

    #[test]
    fn absent_devices_have_reasons() {
        for (id, part) in [("cpu:7", "one device cpu"), ("null:1", "one recording device")] {
            let error = open(id.parse().expect(id)).expect_err(id);
            assert!(matches!(&error, Error::NoDevice { .. }), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        for kind in [BackendKind::OpenCl, BackendKind::Vulkan, BackendKind::Cuda] {
            let error = open(DeviceId::new(kind, 4096)).expect_err("no machine has so many");
            let typed = matches!(error, Error::NoDevice { .. } | Error::BackendNotCompiled { .. });
            assert!(typed, "{error}");
        }
        assert_eq!(open(DeviceId::CPU).expect("is always there").id(), DeviceId::CPU);
    }
}
