//! What can go wrong between the host and a device.

use crate::backend::BackendKind;
use crate::id::DeviceId;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of devices, buffers, programs and queues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text does not name a device.
    #[error("unknown device {given:?}, expected {}, with N from 0 as in opencl:0", forms())]
    ParseDevice {
        /// The text.
        given: String,
    },
    /// This build lacks the backend.
    #[error("the {backend} backend is not compiled in; rebuild with the cargo feature {feature:?}")]
    BackendNotCompiled {
        /// The backend that was asked for.
        backend: BackendKind,
        /// The cargo feature that brings it.
        feature: &'static str,
    },
    /// The backend is there, the device is not.
    #[error("no device {device}: {reason}")]
    NoDevice {
        /// The device that was asked for.
        device: DeviceId,
        /// Why it is not there.
        reason: String,
    },
    /// The device computes wrongly and must not be used.
    #[error("device {device} failed its self-test in {op}: {detail}")]
    SelfTest {
        /// The device.
        device: DeviceId,
        /// The operation that went wrong.
        op: &'static str,
        /// The first wrong value and the expected one.
        detail: String,
    },
    /// The device cannot do this at all.
    #[error("device {device} has no {what}: {reason}")]
    Unsupported {
        /// The device.
        device: DeviceId,
        /// What was asked of it.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// An allocation that the device cannot serve.
    #[error("device {device} cannot allocate {bytes} bytes: {reason}")]
    OutOfMemory {
        /// The device.
        device: DeviceId,
        /// Bytes asked for.
        bytes: usize,
        /// The limit that was hit, or the driver's word.
        reason: String,
    },
    /// A transfer reaches past the end of a buffer.
    #[error("{bytes} bytes at offset {offset} do not fit a buffer of {capacity} bytes")]
    OutOfBounds {
        /// Where the transfer starts, in bytes.
        offset: usize,
        /// How long it is.
        bytes: usize,
        /// The size of the buffer.
        capacity: usize,
    },
    /// A slice that begins where the device allows none.
    #[error("a slice cannot begin at byte {offset}, only at multiples of {alignment}")]
    Unaligned {
        /// Where it was to begin.
        offset: usize,
        /// The device's alignment in bytes.
        alignment: usize,
    },
    /// A copy within one buffer whose source and destination overlap.
    #[error("copy of {bytes} bytes from offset {from} to {to} overlaps itself")]
    Overlap {
        /// Source offset in bytes.
        from: usize,
        /// Destination offset in bytes.
        to: usize,
        /// Length in bytes.
        bytes: usize,
    },
    /// A buffer, event, program or queue of another opened device was passed.
    #[error("the {what} belongs to another opened device than {device}")]
    Foreign {
        /// "buffer", "event", "program" or "queue".
        what: &'static str,
        /// The device that was to use it.
        device: DeviceId,
    },
    /// The source does not compile for the device.
    #[error("program does not compile on {device}: {log}")]
    Compile {
        /// The device.
        device: DeviceId,
        /// The compiler's messages.
        log: String,
    },
    /// A program binary that the device does not take: another device or driver made it, or it is
    /// damaged. Compiling the source again makes one that it takes.
    #[error("program binary is refused by {device}: {reason}")]
    Binary {
        /// The device.
        device: DeviceId,
        /// What is wrong with it.
        reason: String,
    },
    /// A kernel cannot be launched as asked.
    #[error("cannot launch kernel {kernel:?}: {reason}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// What is wrong with the request.
        reason: String,
    },
    /// The device was lost: a kernel that reached beyond its memory, a hang, a reset, a pulled card.
    /// Every later call on its queues answers the same. What its memory held is gone; drop all that
    /// came from the device and open it again, or go on with another one.
    #[error("device {device} is lost: {call} answered {code}")]
    DeviceLost {
        /// The device.
        device: DeviceId,
        /// The driver call that noticed it.
        call: &'static str,
        /// The driver's error name.
        code: String,
    },
    /// The driver refused a call.
    #[error("{call} failed on {device}: {code}")]
    Driver {
        /// The device.
        device: DeviceId,
        /// The driver call.
        call: &'static str,
        /// The driver's error name.
        code: String,
    },
}

/// How devices are named, but the one for tests: `cpu, opencl:N or cuda:N`.
fn forms() -> String {
    let named = BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Null);
    let forms: Vec<String> = named
        .map(|kind| match kind {
            BackendKind::Cpu => kind.to_string(),
            _ => format!("{kind}:N"),
        })
        .collect();
    match forms.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => forms.concat(),
    }
}
