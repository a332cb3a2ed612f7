//! The laws that every backend obeys, as code.
//!
//! A law is a function that tries one promise of [`lgp_hal`] on an opened device. [`run`] tries all
//! of them on every device of every backend and reports each result. An absent device is *skipped
//! with its reason*, never passed in silence; the absence of a required backend is a failure.
//!
//! `cargo test -p lgp-hal-conformance` runs the laws; so does the program
//! `lgp-hal-conformance [--require BACKEND]…`, which exits 1 when a law fails.
//!
//! ```
//! let device = lgp_hal::open(lgp_hal::DeviceId::CPU)?;
//! for law in lgp_hal_conformance::LAWS {
//!     let verdict = (law.check)(&*device);
//!     assert!(!verdict.is_failure(), "{}: {verdict}", law.name);
//! }
//! # Ok::<(), lgp_hal::Error>(())
//! ```

mod backends;
mod command;
mod laws;

pub use backends::{Report, run, run_device};
pub use command::{main_of_test, main_with};
pub use laws::{LAWS, Law, Verdict, random_programs};
