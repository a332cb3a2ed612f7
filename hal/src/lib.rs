//! Devices, queues, buffers and programs: no shapes, no maths.
//!
//! This layer finds the hardware that can run models, reports why a card is not used, opens devices
//! and moves bytes to and from them. The layers above use a device through four object-safe traits,
//! so that a new family of hardware is one folder and one line of a table.
//!
//! # The contract
//!
//! **Finding.** [`probe`] asks every backend for its devices and the kernel for its graphics cards,
//! joins both by PCI address, and returns one [`DeviceInfo`] per device, with a [`Way`] for each
//! backend that sees it. It needs no library,
//! driver or device to be present, never panics and never waits for a hanging driver: `reason`
//! holds the problem, `hint` the line that fixes it. `usable` means that models can run on the
//! device now: it passed its self-test, and kernels run on it ([`Caps::unfit`]). [`select_auto`]
//! selects the device of `auto` and [`open_auto`] opens it; [`diagnose`] reports the details for a
//! person.
//!
//! **Opening.** [`open`] takes a [`DeviceId`], whose variants exist in every build. It returns
//! [`Error::BackendNotCompiled`] with the feature's name, or [`Error::NoDevice`] with the reason.
//! Every device is tested with known results before it is returned; a device that calculates
//! wrongly is refused with the name of the operation ([`Error::SelfTest`]).
//!
//! **Bytes.** A [`Buffer`] is a fixed number of bytes with undefined content; it may be empty. It
//! belongs to the opened device that made it: a device of another backend refuses it, and so does
//! the same GPU opened a second time. Every transfer is checked against the buffer's end. Running
//! out of memory is a typed error, at the allocation or at the first use, because drivers promise
//! memory that they do not have.
//!
//! **Order.** A [`Queue`] is in order: each command sees the effects of earlier commands of the
//! same queue. `read` is done on return, and `write` no longer needs its data; `write`, `copy` and
//! `launch` may still run until `finish`. Two queues run independently. A queue sees another queue's effects after that queue's
//! `finish`, or after waiting for an [`Event`] that it recorded. Handles may be dropped in any
//! order, at any time.
//!
//! **Transfers.** A [`Pinned`] block is host memory that the device accesses directly. A
//! [`Transfer`] owns its block while it runs and then returns it, so that no code can touch the
//! bytes during the transfer.
//!
//! **Loss.** A kernel that reached beyond its memory, a hang, a reset or a pulled card end an
//! opened device. The call that notices the loss, and every later call on the device's queues,
//! returns [`Error::DeviceLost`]. The content of the device's memory is gone: drop every object of
//! the device and open it again, which gives it a new context, or use another device. NVIDIA's
//! driver gives the same process no new context: opening the device again answers
//! [`Error::NeedsRestart`]. A kernel that loses the device once will do so again.
//!
//! **Programs.** [`Device::compile`] takes the portable language of kernels ([`prelude`]). A source
//! that does not compile is [`Error::Compile`] with the compiler's messages, a launch that does not
//! fit [`Error::Launch`]. A device without programs (the processor, the recording device, an NVIDIA
//! card without NVRTC) returns [`Error::Unsupported`]. A compiled program can be stored
//! ([`Program::binary`]) and loaded again ([`Device::load`]); a refused binary is
//! [`Error::Binary`], after which the source must be compiled.
//!
//! **Libraries.** A queue moves bytes and launches programs; it knows no maths. If the vendor's
//! library of matrix products is installed, [`Device::blas`] returns it; its products run in the
//! order of the given queue.
//!
//! The crate `lgp-hal-conformance` holds these laws as code and runs them against every backend.
//!
//! # Features
//!
//! `cpu` is always available. `vulkan` adds Vulkan 1.2 devices. `rocm` adds OpenCL devices; the name is the one that users look for,
//! although old AMD cards are driven through OpenCL (Mesa rusticl, ROCm's or AMD's own), not
//! through HIP. `cuda` adds NVIDIA devices. None needs an SDK to build; libraries are loaded at run
//! time.
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
mod exit;
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
pub use auto::{open_auto, open_auto_by, select_auto, select_auto_by};
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
pub use exit::exit;
pub use gemm::{Gemm, Matrix};
pub use id::{DeviceId, PciAddress};
pub use info::{DeviceInfo, SelfTest, Way};
pub use monitor::Monitor;
pub use pinned::{Pinned, Transfer};
pub use portable::{GROUP_MAX, LOCAL_BYTES, prelude, with_prelude};
pub use probe::{ProbeOptions, probe};
pub use program::{Arg, Launch, Program};
pub use queue::Queue;
pub use registry::open;
pub use self_test::{Operands, Outcomes, TestOp, arithmetic_by_program, self_test};
pub use telemetry::{PcieLink, Telemetry};
