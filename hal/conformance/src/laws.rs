//! The table of laws, and the verdict of a law.

mod arithmetic;
mod events;
mod gemm;
mod memory;
mod neighbours;
mod order;
mod pinned;
mod programs;
mod random;

pub use random::random_programs;

use lgp_hal::{Device, Error};
use std::fmt;

/// The result of a law on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The device keeps the promise.
    Kept,
    /// The device breaks the promise.
    Broken(String),
    /// The law does not apply to this device.
    Skipped(String),
}

impl Verdict {
    /// Whether the law was broken.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Broken(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept => f.write_str("ok"),
            Self::Broken(what) => write!(f, "FAILED: {what}"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
        }
    }
}

/// One promise of the hardware layer.
#[derive(Debug, Clone, Copy)]
pub struct Law {
    /// The promise in a few words.
    pub name: &'static str,
    /// Tries the promise on a device.
    pub check: fn(&dyn Device) -> Verdict,
}

/// Every law, from bytes to programs.
pub const LAWS: &[Law] = &[
    Law { name: "capabilities are plausible", check: |it| told(memory::capabilities(it)) },
    Law { name: "what is written is read", check: |it| told(memory::round_trip(it)) },
    Law { name: "a write leaves the rest alone", check: |it| told(memory::partial_write(it)) },
    Law { name: "every bound is checked", check: |it| told(memory::bounds(it)) },
    Law { name: "copies copy", check: |it| told(memory::copies(it)) },
    Law { name: "slices share their buffer", check: |it| told(memory::slices(it)) },
    Law { name: "nothing can be moved too", check: |it| told(memory::nothing(it)) },
    Law { name: "out of memory has a type", check: |it| told(memory::out_of_memory(it)) },
    Law { name: "foreign buffers are refused", check: |it| told(memory::foreign(it)) },
    Law { name: "a queue is in order", check: |it| told(order::in_order(it)) },
    Law { name: "two queues do not disturb each other", check: |it| told(order::two_queues(it)) },
    Law { name: "threads may share buffers", check: |it| told(order::threads(it)) },
    Law { name: "handles drop in any order", check: |it| told(order::drops(it)) },
    Law { name: "an event is done after what is before it", check: |it| told(events::done(it)) },
    Law { name: "a queue waits for another's event", check: |it| told(events::across(it)) },
    Law { name: "timed queues tell the device's time", check: |it| told(events::times(it)) },
    Law { name: "pinned blocks carry bytes both ways", check: |it| told(pinned::both_ways(it)) },
    Law { name: "transfers keep their order", check: |it| told(pinned::order(it)) },
    Law { name: "transfers may be dropped in flight", check: |it| told(pinned::drops(it)) },
    Law { name: "bounds of transfers are checked", check: |it| told(pinned::bounds(it)) },
    Law { name: "the self-test passes", check: |it| told(order::self_test(it)) },
    Law { name: "no programs is a typed answer", check: programs::absence },
    Law { name: "a kernel adds vectors", check: arithmetic::add_vectors },
    Law { name: "quotients are rounded to nearest", check: arithmetic::quotients },
    Law { name: "functions are as accurate as OpenCL's", check: arithmetic::functions },
    Law { name: "options define constants", check: programs::options },
    Law { name: "each kind of argument arrives", check: programs::arguments },
    Law { name: "each work-item knows its place", check: programs::grids },
    Law { name: "a grid may have many work-groups", check: programs::many_groups },
    Law { name: "kernels and transfers keep their order", check: programs::order },
    Law { name: "random programs mean what C says", check: random::law },
    Law { name: "a binary is the program", check: programs::binaries },
    Law { name: "a faulty source is a typed error", check: programs::faulty_source },
    Law { name: "a faulty launch is a typed error", check: programs::faulty_launch },
    Law { name: "devices do not disturb each other", check: neighbours::law },
    Law { name: "a library is there where the caps say so", check: |it| told(gemm::presence(it)) },
    Law { name: "the vendor's library multiplies", check: gemm::products },
];

/// The error of a law's body: the broken promise in words.
pub(crate) struct Broken(String);

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

/// The result of a law's body.
pub(crate) type Lawful = Result<(), Broken>;

/// A body's result as a verdict.
pub(crate) fn told(result: Lawful) -> Verdict {
    match result {
        Ok(()) => Verdict::Kept,
        Err(Broken(what)) => Verdict::Broken(what),
    }
}

/// Breaks the law unless `holds`.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Lawful {
    if holds { Ok(()) } else { Err(Broken(what())) }
}

/// Breaks the law unless two vectors are equal; names the first difference.
pub(crate) fn same<T: PartialEq + fmt::Debug>(what: &str, given: &[T], expected: &[T]) -> Lawful {
    ensure(given.len() == expected.len(), || {
        format!("{what}: {} elements, expected {}", given.len(), expected.len())
    })?;
    match given.iter().zip(expected).position(|(given, expected)| given != expected) {
        None => Ok(()),
        Some(at) => Err(Broken(format!(
            "{what}: element {at} is {:?}, expected {:?}",
            given[at], expected[at]
        ))),
    }
}

/// Breaks the law unless the result is an error of the wanted kind.
pub(crate) fn refused<T>(
    what: &str,
    result: Result<T, Error>,
    wanted: fn(&Error) -> bool,
) -> Lawful {
    match result {
        Err(error) if wanted(&error) => Ok(()),
        Err(error) => Err(Broken(format!("{what}: refused with another error: {error}"))),
        Ok(_) => Err(Broken(format!("{what}: not refused"))),
    }
}

/// Bytes that differ from their neighbours and between seeds.
pub(crate) fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| byte()).collect()
}

#[cfg(test)]
mod tests;
