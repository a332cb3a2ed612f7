//! Matrix products.

use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{Det, Gemm, MatMul};

pub(crate) fn gemm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // Before opset 7 this flag let the addend broadcast, which is always allowed here.
    cx.ignore(&["broadcast"]);
    let op = Gemm {
        alpha: cx.float("alpha")?.unwrap_or(1.),
        beta: cx.float("beta")?.unwrap_or(1.),
        trans_a: cx.flag("transA")?.unwrap_or(false),
        trans_b: cx.flag("transB")?.unwrap_or(false),
    };
    cx.map(op)
}

pub(crate) fn mat_mul(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(MatMul)
}

pub(crate) fn det(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(Det)
}
