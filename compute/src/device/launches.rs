//! The launches of an operator, without the sizes of its inputs and outputs.

use super::kernel::Call;
use super::library::LibraryProduct;

/// The launches of an operator, and the sizes of the scratch buffers between them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Launches {
    /// The product that the vendor's library computes before the calls.
    pub(crate) library: Option<Box<LibraryProduct>>,
    /// The launches of kernels, one after the other.
    pub(crate) calls: Vec<Call>,
    /// Bytes of each scratch buffer.
    pub(crate) scratch: Vec<usize>,
}

impl From<Call> for Launches {
    fn from(call: Call) -> Self {
        Self { calls: vec![call], ..Self::default() }
    }
}
