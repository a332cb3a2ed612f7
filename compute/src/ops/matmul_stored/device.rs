//! Products with stored weights on devices: kernels widen a tile of the weight as they load it.

use super::MatMulStored;
use crate::args::optional;
use crate::device::{Argument, Blocks, Factor, Launches, Product, Scale, Zero};
use crate::op::ValueInfo;
use lgp_memory::DType;

pub(super) fn launches(
    op: &MatMulStored,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    product(op, inputs, outputs)?.launches()
}

pub(super) fn schedules(
    op: &MatMulStored,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    product(op, inputs, outputs).map_or(Vec::new(), |product| product.schedules())
}

fn product(
    op: &MatMulStored,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Product<'static>> {
    let ([output], stored) = (outputs, optional(inputs, 1)?) else { return None };
    let (a, weight) = (optional(inputs, 0)?.ty.concrete_shape()?, op.weight(inputs).ok()?);
    let &[k, n] = weight.ty.concrete_shape()?.dims() else { return None };
    let plain = |i, dtype, along| Factor::plain(Argument::Input(i), dtype, along);
    let elements = |i: usize| optional(inputs, i)?.ty.concrete_shape()?.elements().ok();
    let right = match &op.bits {
        Some(bits) => {
            let zero = optional(inputs, 3).map(|zero| zero.ty.dtype);
            if !bits.fits([elements(1)?, elements(2)?], zero.zip(elements(3))) {
                return None;
            }
            let scale = Argument::Input(2);
            let zero = zero.map(|dtype| (Argument::Input(3), dtype));
            let blocks = Blocks { scale, zero, bits: bits.bits, block: bits.block };
            Factor { scale: Some(Scale::Blocks(blocks)), ..plain(1, DType::U8, true) }
        }
        None => {
            let each = |i: usize| match elements(i) {
                None => Some(None),
                Some(1) => Some(Some((Argument::Input(i), false))),
                Some(count) => (count == n).then_some(Some((Argument::Input(i), true))),
            };
            let scale = each(2)?.map(|(argument, each)| Scale::Sides { argument, each });
            let zero = each(3)?.map(|(argument, each)| Zero { argument, each });
            Factor { scale, zero, ..plain(1, stored.ty.dtype, false) }
        }
    };
    let rows = a.iter().rev().skip(1).product();
    Some(Product {
        sizes: [rows, n, k],
        operands: [plain(0, DType::F32, true), right],
        batches: [&[]; 3],
        alpha: 1.,
        addend: None,
        y: (Argument::Output(0), output.ty.dtype),
    })
}
