//! Devices, queues, buffers and programs: no shapes, no maths.
//!
//! This layer finds the hardware that can run models, says why a card is not used, opens devices
//! and moves bytes to and from them. Everything above it speaks of a device through four
//! object-safe traits, so that a new family of hardware is one folder and one line of a table.
//!
//! # The contract
//!
//! **Finding.** [`probe`] looks at every backend and at what the kernel says of graphics cards,
//! joins both by PCI address, and answers one [`DeviceInfo`] per device. It needs no library,
//! driver or device to be present, never panics and never waits for a hanging driver: what is
//! wrong stands in `reason`, the line that mends it in `hint`. `usable` means that models can run
//! on the device now: it passed its test, and kernels run on it ([`Caps::unfit`]). [`select_auto`]
//! picks the device that `auto` means and [`open_auto`] opens it; [`diagnose`] tells a person the
//! same at length.
//!
//! **Opening.** [`open`] takes a [`DeviceId`], whose variants exist in every build, and answers
//! [`Error::BackendNotCompiled`] with the feature's name or [`Error::NoDevice`] with the reason
//! where it cannot. Every device is tested with known sums before it is handed out; one that
//! calculates wrongly is refused with the name of the operation ([`Error::SelfTest`]).
//!
//! **Bytes.** A [`Buffer`] is a fixed number of bytes with undefined content, zero allowed. It
//! belongs to the opened device that made it; a device of another backend refuses it, and so do
//! GPUs that were opened a second time. Every transfer is checked against the buffer's end. Running
//! out of memory is a typed error, at the allocation or at the first use, for drivers promise memory
//! that they do not have.
//!
//! **Order.** A [`Queue`] is in order: each command sees what earlier ones of the same queue did.
//! `write` and `read` are done on return; `copy` and `launch` may still run until `finish`. Two
//! queues run independently; one sees what the other did after that one's `finish`, or by waiting
//! for an [`Event`] that the other recorded. Handles may be dropped in any order, at any time.
//!
//! **Transfers.** A [`Pinned`] block is host memory that the device reaches by itself. A
//! [`Transfer`] owns its block while it runs and gives it back, so that no code can touch bytes
//! that are on their way.
//!
//! **Loss.** A kernel that reached beyond its memory, a hang, a reset or a pulled card end an opened
//! device. The call that notices it, and every later one on the device's queues, answers
//! [`Error::DeviceLost`]. What the device's memory held is gone: drop all that came from the device
//! and open it again, which gives it a new context, or go on with another one. A kernel that loses
//! the device once will do so again.
//!
//! **Programs.** [`Device::compile`] takes the portable language of kernels ([`prelude`]). A source
//! that does not compile is [`Error::Compile`] with the compiler's messages, a launch that does not fit [`Error::Launch`].
//! A device without programs (the processor, the recording device, an NVIDIA card without NVRTC)
//! answers [`Error::Unsupported`]. What was compiled can be kept ([`Program::binary`]) and loaded
//! again ([`Device::load`]); a binary that is refused is [`Error::Binary`], and compiling is the
//! answer to it.
//!
//! **Libraries.** A queue moves bytes and launches programs; it knows no maths. Where the vendor's
//! library of products is there, [`Device::blas`] has it, and it works in the order of the queue
//! that it is given.
//!
//! The crate `lgp-hal-conformance` holds these laws as code and runs them against every backend.
//!
//! # Features
//!
//! `cpu` is always there. `rocm` brings OpenCL devices, and is called so because that is what
//! people look for: old AMD cards are driven through OpenCL (Mesa rusticl, ROCm's or AMD's own),
//! not through HIP. `cuda` brings NVIDIA devices. None needs an SDK to build; libraries are loaded
//! at run time.
//!
//! # Example
//!
//! ```
//! use lgp_hal::{DeviceId, ProbeOptions, open, probe, select_auto};
//!
//! let devices = probe(&ProbeOptions::default());
//! for info in &devices {
//!     println!("{}: {}, {}", info.id, info.name, info.reason.as_deref().unwrap_or("usable"));
//! }
//! let device = open(select_auto(&devices))?;
//! let buffer = device.allocate(4)?;
//! let mut queue = device.queue()?;
//! queue.write(&*buffer, 0, &[1, 2, 3, 4])?;
//! let mut bytes = [0; 2];
//! queue.read(&*buffer, 1, &mut bytes)?;
//! assert_eq!(bytes, [2, 3]);
//! # Ok::<(), lgp_hal::Error>(())
//! ```

mod advice;
mod amd;
mod auto;
mod backend;
mod blas;
mod buffer;
mod caps;
mod device;
mod diagnose;
mod error;
mod event;
mod gemm;
mod id;
mod info;
mod life;
mod monitor;
mod pinned;
mod portable;
mod probe;
mod program;
mod queue;
mod registry;
mod self_test;
mod telemetry;
pub mod testing;
mod versions;

pub use amd::ids::AmdChip;
pub use amd::kfd::KfdNode;
pub use amd::sysfs::Card;
pub use auto::{open_auto, select_auto};
pub use backend::BackendKind;
pub use backend::cpu::host_free_bytes;
pub use backend::host::Command;
pub use backend::null::NullDevice;
pub use blas::Blas;
pub use buffer::Buffer;
pub use caps::{Caps, DeviceKind};
pub use device::Device;
pub use diagnose::{Finding, Status, diagnose, examine};
pub use error::{Error, Result};
pub use event::Event;
pub use gemm::{Gemm, Matrix};
pub use id::{DeviceId, PciAddress};
pub use info::{DeviceInfo, SelfTest};
pub use monitor::Monitor;
pub use pinned::{Pinned, Transfer};
pub use portable::{GROUP_MAX, LOCAL_BYTES, prelude, with_prelude};
pub use probe::{ProbeOptions, probe};
pub use program::{Arg, Launch, Program};
pub use queue::Queue;
pub use registry::open;
pub use self_test::{Operands, Outcomes, TestOp, arithmetic_by_program, self_test};
pub use telemetry::{PcieLink, Telemetry};
