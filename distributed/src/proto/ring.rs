//! Collectives between processes that form a ring, each sending to the next: what is sent and
//! received, in which order, and what is made of it. `net` carries the bytes.

mod call;
mod element;
mod pass;
mod round;
#[cfg(test)]
mod tests;

pub(crate) use call::{Call, HEADER_BYTES, Operation};
pub use element::RingElement;
pub(crate) use element::{Sum, Word};
pub(crate) use pass::{CHUNK_BYTES, Pass, parts};
pub(crate) use round::Round;
