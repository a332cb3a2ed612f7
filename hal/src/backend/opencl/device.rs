//! An opened OpenCL device.

use super::buffer::ClBuffer;
use super::program::ClProgram;
use super::queue::ClQueue;
use super::quirks::Quirks;
use super::shared::Shared;
use super::{Entry, info, pinned};
use crate::amd::sysfs::{Reader, Sysfs};
use crate::backend::{Found, cpu};
use crate::buffer::Buffer;
use crate::caps::{Caps, DeviceKind};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::life::Life;
use crate::pinned::Pinned;
use crate::program::Program;
use crate::queue::Queue;
use crate::self_test::{Operands, Outcomes, arithmetic_by_program};
use opencl3::command_queue::CL_QUEUE_PROFILING_ENABLE;
use opencl3::context::Context;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// An OpenCL device with a context of its own.
#[derive(Debug)]
pub(super) struct ClDevice {
    name: String,
    shared: Arc<Shared>,
}

impl ClDevice {
    /// Makes a context on the device.
    pub(super) fn open(id: DeviceId, entry: &Entry) -> Result<Self> {
        let context = Context::from_device(&entry.device).map_err(|error| {
            let code = error.to_string();
            Error::Driver { device: id, call: "clCreateContext", code }
        })?;
        let Found { name, mut caps } = info::describe(entry);
        let (device, life) = (entry.device, Life::default());
        let quirks = Quirks::of(&entry.platform, device.driver_version().ok().as_deref());
        for (quirk, reason) in quirks.all() {
            tracing::debug!(%id, ?quirk, reason, "the driver has a quirk");
        }
        let memories = AtomicU64::new(0);
        let mut shared = Shared { id, caps: caps.clone(), device, context, quirks, life, memories };
        if caps.programs && caps.wave == 0 {
            caps.wave = wave_of_a_kernel(&shared);
            shared.caps = caps;
        }
        Ok(Self { name, shared: Arc::new(shared) })
    }
}

/// The lock-step width of a compiled kernel, as devices before OpenCL 3.0 report it. 0 if that
/// fails; the self-test will report the failure.
fn wave_of_a_kernel(shared: &Shared) -> u32 {
    const SOURCE: &str = "__kernel void probe(__global int *out) { out[get_global_id(0)] = 1; }";
    let build = || {
        let program =
            opencl3::program::Program::create_and_build_from_source(&shared.context, SOURCE, "")
                .ok()?;
        let kernel = opencl3::kernel::Kernel::create(&program, "probe").ok()?;
        kernel.get_work_group_size_multiple(shared.device.id()).ok()
    };
    build().and_then(|size| u32::try_from(size).ok()).unwrap_or(0)
}

impl Device for ClDevice {
    fn id(&self) -> DeviceId {
        self.shared.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn free_bytes(&self) -> Option<u64> {
        if self.shared.caps.kind == DeviceKind::Cpu {
            let of_device = self.shared.caps.memory_bytes.unwrap_or(u64::MAX);
            return cpu::facts::free_bytes().map(|free| free.min(of_device));
        }
        let pci = self.shared.caps.pci?;
        let read: Reader = |path| std::fs::read_to_string(path);
        let sysfs = Sysfs::new(Path::new("/sys"), read);
        let card = sysfs.cards().into_iter().find(|card| card.is_amd() && card.pci == Some(pci))?;
        sysfs.telemetry(&card).vram_free_bytes()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Buffer>> {
        self.shared.life.check()?;
        Ok(Arc::new(ClBuffer::new(Arc::clone(&self.shared), bytes)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        self.shared.life.check()?;
        Ok(Box::new(ClQueue::new(Arc::clone(&self.shared), 0)?))
    }

    fn timed_queue(&self) -> Result<Box<dyn Queue>> {
        self.shared.life.check()?;
        Ok(Box::new(ClQueue::new(Arc::clone(&self.shared), CL_QUEUE_PROFILING_ENABLE)?))
    }

    fn pinned(&self, bytes: usize) -> Result<Pinned> {
        self.shared.life.check()?;
        pinned::new(&self.shared, bytes)
    }

    fn compile(&self, source: &str, options: &str) -> Result<Arc<dyn Program>> {
        self.shared.life.check()?;
        Ok(Arc::new(ClProgram::build(Arc::clone(&self.shared), source, options)?))
    }

    unsafe fn load(&self, binary: &[u8]) -> Result<Arc<dyn Program>> {
        self.shared.life.check()?;
        // SAFETY: the caller's promise is passed on.
        Ok(Arc::new(unsafe { ClProgram::load(Arc::clone(&self.shared), binary) }?))
    }

    fn arithmetic(&self, operands: &Operands) -> Result<Outcomes> {
        arithmetic_by_program(self, operands)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::backend::BackendKind;
    use crate::program::Launch;
    use opencl3::error_codes::ClError;

    impl ClDevice {
        pub(in super::super) fn shared(&self) -> &Arc<Shared> {
            &self.shared
        }
    }

    /// The last device, without the self-test.
    pub(in super::super) fn opened() -> Option<ClDevice> {
        let entry = super::super::enumerate().ok().and_then(|(mut it, _)| it.pop());
        if entry.is_none() {
            println!("skipped: opencl: there is no device");
        }
        let id = DeviceId::new(BackendKind::OpenCl, 0);
        entry.map(|entry| ClDevice::open(id, &entry).expect("opens"))
    }

    #[test]
    fn errors_of_transfers_and_launches_end_the_device_only_by_a_loss() {
        const MOVED: &str = "clEnqueueReadBuffer";
        let Some(device) = opened() else { return };
        let program = device.compile("KERNEL void f(void) {}", "").expect("compiles");
        let (program, one) = (&*program, [1; 3]);
        let launch = Launch { program, kernel: "f", global: one, local: None, args: &[] };
        let shared = &device.shared;
        for (error, is_shortage) in [
            (shared.moved(MOVED, 4)(ClError(-4)), true),
            (shared.moved(MOVED, 4)(ClError(-6)), true),
            (shared.used(MOVED, 4)(ClError(-5)), true),
            (shared.launched("clEnqueueNDRangeKernel", &launch)(ClError(-4)), true),
            (shared.launched("clEnqueueNDRangeKernel", &launch)(ClError(-5)), false),
            (shared.launched("clEnqueueNDRangeKernel", &launch)(ClError(-54)), false),
        ] {
            let as_expected = match &error {
                Error::OutOfMemory { .. } => is_shortage,
                Error::Launch { kernel, .. } => !is_shortage && kernel == "f",
                _ => false,
            };
            assert!(as_expected, "{error}");
            assert_eq!(shared.life.check(), Ok(()), "{error}");
        }
        let end = shared.launched("clEnqueueNDRangeKernel", &launch)(ClError(-36));
        assert!(matches!(end, Error::DeviceLost { .. }), "{end}");
        assert_eq!(device.allocate(1).map(drop), Err(end));

        let Some(device) = opened() else { return };
        let end = device.shared.moved(MOVED, 4)(ClError(-5));
        assert!(matches!(end, Error::DeviceLost { call: MOVED, .. }), "{end}");
        assert_eq!(device.allocate(1).map(drop), Err(end));
    }

    #[test]
    fn a_lost_device_answers_each_call_with_its_loss() {
        let Some(device) = opened() else { return };
        let buffer = device.allocate(16).expect("fits");
        let (mut queue, blocks) =
            (device.queue().expect("is there"), [16, 16].map(|bytes| device.pinned(bytes)));
        let event = queue.record().expect("is there");
        let [one, two] = blocks.map(|block| block.expect("fits"));
        let end = device.shared.waited("clFinish")(ClError(-5));
        assert!(matches!(end, Error::DeviceLost { call: "clFinish", .. }), "{end}");
        let answers = [
            device.allocate(1).map(drop),
            device.pinned(1).map(drop),
            device.queue().map(drop),
            device.compile("KERNEL void f(void) {}", "").map(drop),
            queue.write(&*buffer, 0, &[0]),
            queue.read(&*buffer, 0, &mut [0]),
            queue.write_async(&*buffer, 0, one, 16).map(drop),
            queue.read_async(&*buffer, 0, two, 16).map(drop),
            queue.copy(&*buffer, 0, &*buffer, 8, 8),
            queue.record().map(drop),
            queue.wait_for(&*event),
            event.wait(),
            event.is_done().map(drop),
            queue.submit(),
            queue.finish(),
        ];
        for (at, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer, Err(end.clone()), "call {at}");
        }
    }
}
