//! Errors between the host and a device.

use crate::backend::BackendKind;
use crate::id::DeviceId;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of devices, buffers, programs and queues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text does not name a device.
    #[error("unknown device {given:?}, expected {}, with N from 0 as in vulkan:0", forms())]
    ParseDevice {
        /// The text.
        given: String,
    },
    /// This build lacks the backend.
    #[error("the {backend} backend is not compiled in; rebuild with the cargo feature {feature:?}")]
    BackendNotCompiled {
        /// The requested backend.
        backend: BackendKind,
        /// The cargo feature that compiles it in.
        feature: &'static str,
    },
    /// The backend has no such device.
    #[error("no device {device}: {reason}")]
    NoDevice {
        /// The requested device.
        device: DeviceId,
        /// Why the device is missing.
        reason: String,
    },
    /// The device computes wrongly and must not be used.
    #[error("device {device} failed its self-test in {op}: {detail}")]
    SelfTest {
        /// The device.
        device: DeviceId,
        /// The operation with a wrong result.
        op: &'static str,
        /// The first wrong value and the expected one.
        detail: String,
    },
    /// The device lacks a capability.
    #[error("device {device} has no {what}: {reason}")]
    Unsupported {
        /// The device.
        device: DeviceId,
        /// The requested capability.
        what: &'static str,
        /// Why the device lacks it.
        reason: String,
    },
    /// An allocation that the device cannot serve.
    #[error("device {device} cannot allocate {bytes} bytes: {reason}")]
    OutOfMemory {
        /// The device.
        device: DeviceId,
        /// Requested bytes.
        bytes: usize,
        /// The limit that was reached, or the driver's message.
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
    /// A slice that begins at an offset that the device does not allow.
    #[error("a slice cannot begin at byte {offset}, only at multiples of {alignment}")]
    Unaligned {
        /// The slice's offset in bytes.
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
        /// The device that was given the object.
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
    /// A program binary that the device refuses: another device or driver made it, or it is
    /// damaged. Compiling the source again makes a valid one.
    #[error("program binary is refused by {device}: {reason}")]
    Binary {
        /// The device.
        device: DeviceId,
        /// What is wrong with the binary.
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
    /// The device was lost: a kernel that reached beyond its memory, a hang, a reset, a pulled
    /// card. Every later call on its queues returns the same error. The content of its memory is
    /// gone; drop every object of the device and open it again, or use another device.
    #[error("device {device} is lost: {call} answered {code}")]
    DeviceLost {
        /// The device.
        device: DeviceId,
        /// The driver call that reported the loss.
        call: &'static str,
        /// The driver's error name.
        code: String,
    },
    /// The device was lost, and its driver opens it again for another process only. End this process
    /// and start it again, or use another device.
    #[error(
        "device {device} was lost by {code} and works again only in a new process: restart this one"
    )]
    NeedsRestart {
        /// The device.
        device: DeviceId,
        /// The driver's name of the error that ended the device.
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

/// The forms of device ids, except that of the device for tests: `cpu, opencl:N, vulkan:N or cuda:N`.
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
