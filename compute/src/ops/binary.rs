//! Element-wise operators of two inputs, with numpy broadcasting.

mod bytes;
mod cpu;
mod device;
mod kind;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{output, required, same_dtype};
use crate::bytes::{Dequantized, OnBytes, Requantized, generic};
use crate::device::Element;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Given, Op, ValueInfo, as_large};
use crate::rewrite::Affine;
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorView};
use std::ops::RangeInclusive;

pub use kind::BinaryKind;

/// An element-wise operator of two inputs of one dtype that broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binary {
    /// The function.
    pub kind: BinaryKind,
}

impl Binary {
    /// The operator of a function.
    #[must_use]
    pub fn new(kind: BinaryKind) -> Self {
        Self { kind }
    }
}

impl Op for Binary {
    fn name(&self) -> &'static str {
        match self.kind {
            BinaryKind::Add => "Add",
            BinaryKind::Sub => "Sub",
            BinaryKind::Mul => "Mul",
            BinaryKind::Div => "Div",
            BinaryKind::Pow => "Pow",
            BinaryKind::Min => "Min",
            BinaryKind::Max => "Max",
            BinaryKind::Mod { .. } => "Mod",
            BinaryKind::PRelu => "PRelu",
            BinaryKind::Equal => "Equal",
            BinaryKind::Less => "Less",
            BinaryKind::LessOrEqual => "LessOrEqual",
            BinaryKind::Greater => "Greater",
            BinaryKind::GreaterOrEqual => "GreaterOrEqual",
            BinaryKind::And => "And",
            BinaryKind::Or => "Or",
            BinaryKind::Xor => "Xor",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
        if self.kind != BinaryKind::Pow {
            same_dtype("input 1", a.ty.dtype, b.ty.dtype)?;
        }
        let bools = a.ty.dtype == DType::Bool || b.ty.dtype == DType::Bool;
        let fits = match self.kind {
            BinaryKind::And | BinaryKind::Or | BinaryKind::Xor => bools,
            BinaryKind::Equal => true,
            _ => !bools && a.ty.dtype != DType::Str,
        };
        if !fits {
            return Err(Error::invalid(format!("dtype {} is not supported", a.ty.dtype)));
        }
        let shape = match (a.sym_shape(), b.sym_shape()) {
            (Some(a), Some(b)) => Some(dims::broadcast(a, b)?),
            _ => None,
        };
        if let (BinaryKind::PRelu, Some(x), Some(out)) = (self.kind, a.sym_shape(), &shape) {
            let grows = x.len() != out.len()
                || x.iter()
                    .zip(out)
                    .any(|(x, out)| matches!((x, out), (Dim::Known(1), Dim::Known(n)) if *n != 1));
            if grows {
                let (x, slope) = (SymShape(x.to_vec()), &b.ty);
                let message = format!("slope of type {slope} does not broadcast to {x}");
                return Err(Error::invalid(message));
            }
        }
        let dtype = if self.compares() { DType::Bool } else { a.ty.dtype };
        let contents = self.contents(a, b);
        Ok(output(dtype, shape).into_iter().map(|o| o.with_contents(contents.clone())).collect())
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn overwrites(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<usize> {
        let dtype = |i: usize| inputs.get(i).copied().flatten().map(|info| info.ty.dtype);
        // A zero divisor must be found before any element is written.
        let divides = matches!(self.kind, BinaryKind::Div | BinaryKind::Mod { .. });
        let mut over = as_large(inputs, outputs);
        over.retain(|i| !(divides && *i == 1) && dtype(0) == dtype(1));
        over
    }

    fn run_over(
        &self,
        ctx: &Context,
        given: Given,
        inputs: &[Option<TensorView<'_>>],
    ) -> Result<Vec<Tensor>> {
        cpu::run_over(self, ctx, given, inputs).map_err(|error| error.of(self.name()))
    }

    fn expression(&self, x: &[Option<Element<'_>>]) -> Option<String> {
        device::expression(self, x)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn arithmetic(&self) -> Option<BinaryKind> {
        Some(self.kind)
    }

    fn affine(&self, inputs: &[Option<&ValueInfo>]) -> Option<Affine> {
        bytes::affine(self, inputs)
    }

    fn on_bytes(&self, inputs: &[Option<Dequantized<'_>>], y: &Requantized) -> Option<OnBytes> {
        bytes::on_bytes(self, inputs, y).or_else(|| generic(self, inputs, y))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}

impl Binary {
    /// Whether the result is a bool.
    fn compares(&self) -> bool {
        use BinaryKind as K;
        matches!(
            self.kind,
            K::Equal
                | K::Less
                | K::LessOrEqual
                | K::Greater
                | K::GreaterOrEqual
                | K::And
                | K::Or
                | K::Xor
        )
    }

    /// The tracked dimensions of the result, such as `4 · 2` or `N · 1`, from those of both inputs.
    fn contents(&self, a: &ValueInfo, b: &ValueInfo) -> Option<Vec<Dim>> {
        if a.dims.is_none() && b.dims.is_none() {
            return None;
        }
        let (a, b) = (a.contents()?, b.contents()?);
        let n = a.len().max(b.len());
        let at = |d: &[Dim], i: usize| if d.len() == 1 { d.first() } else { d.get(i) }.cloned();
        (0..n)
            .map(|i| {
                let (a, b) = (at(&a, i)?, at(&b, i)?);
                Some(match (self.kind, &a, &b) {
                    (BinaryKind::Add, ..) => dims::add(&a, &b).ok()?,
                    (BinaryKind::Mul, ..) => dims::mul(&a, &b).ok()?,
                    (BinaryKind::Sub, _, Dim::Known(0)) | (BinaryKind::Div, _, Dim::Known(1)) => a,
                    (BinaryKind::Sub, Dim::Known(a), Dim::Known(b)) => {
                        a.checked_sub(*b).map_or(Dim::Unknown, Dim::Known)
                    }
                    (BinaryKind::Div, Dim::Known(a), Dim::Known(b)) => {
                        a.checked_div(*b).map_or(Dim::Unknown, Dim::Known)
                    }
                    _ => Dim::Unknown,
                })
            })
            .collect()
    }
}
