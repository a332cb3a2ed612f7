//! Collectives between processes that stand in a ring, each sending to the next: what is sent and
//! taken, in which order, and what is made of it. Carrying the bytes is `net`'s business.

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
