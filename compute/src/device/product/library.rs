//! Products that the library of the device's vendor computes.

use super::schedule::ROWS_FEW;
use super::{Factor, Product};
use crate::device::kernel::Argument;
use crate::device::launches::Launches;
use crate::device::library::{LibraryOperand, LibraryProduct};
use lgp_memory::DType;

impl Product<'_> {
    /// The launches in which the vendor's library multiplies and a kernel finishes its result.
    /// Where nothing is left to finish, launches without that kernel come first.
    pub(super) fn library(&self) -> Vec<Launches> {
        let [m, n, k] = self.sizes;
        let [all, left, right] = self.batches.map(|dims| dims.iter().product::<usize>());
        let plain = |x: Factor| x.dtype == DType::F32 && x.zero.is_none() && x.scale.is_none();
        let regular = |batches: usize| batches == all || batches == 1;
        // A product with few rows or columns waits for memory, with the library or without.
        let is_small = m.min(n) <= ROWS_FEW || k == 0;
        if is_small || !self.operands.into_iter().all(plain) || !regular(left) || !regular(right) {
            return Vec::new();
        }
        let [a, b] = self.operands;
        let operand = |x: Factor, transposed: bool, batches: usize| LibraryOperand {
            argument: x.argument,
            transposed,
            each: batches > 1,
        };
        let operands = [operand(a, !a.along, left), operand(b, b.along, right)];
        let product = |result: Argument| {
            Some(Box::new(LibraryProduct { sizes: self.sizes, batch: all, operands, result }))
        };
        let mut ways = Vec::new();
        let is_plain = self.alpha.to_bits() == 1f32.to_bits() && self.addend.is_none();
        if is_plain && self.y.1 == DType::F32 {
            ways.push(Launches { library: product(self.y.0), ..Launches::default() });
        }
        let finished = || {
            let count = self.count()?;
            let (library, scratch) = (product(Argument::Scratch(0)), vec![count.checked_mul(4)?]);
            let calls = vec![self.sum_parts(Argument::Scratch(0), count, 1, [n, 1])?];
            Some(Launches { library, calls, scratch })
        };
        ways.extend(finished());
        ways
    }
}
