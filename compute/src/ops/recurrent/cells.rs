//! One step of each cell, for a whole batch.

use super::cpu::Sizes;
use super::{Activation, Cell, Recurrent};
use crate::error::{Error, Result};
use crate::gemm;
use crate::isa::Simd;
use crate::matrix::{Mat, product};
use crate::number::Number;
use crate::op::Context;
use crate::ops::unary::Exp;
use crate::simd::dispatch;
use lgp_memory::{DType, Tensor};

/// What a step of one direction needs, and the states that it changes.
pub(super) struct Step<'a, T> {
    cell: Cell,
    sizes: Sizes,
    activations: &'a [Activation],
    clip: Option<T>,
    /// The weights of the states, laid out for the products of all steps: those of all gates, or of
    /// a GRU's first two and of its last one.
    weights: [Tensor; 2],
    bias: Option<&'a [T]>,
    peepholes: Option<&'a [T]>,
    /// The states `[batch, hidden]` before the step.
    pub(super) hidden: Vec<T>,
    pub(super) cell_state: Vec<T>,
    new_hidden: Vec<T>,
    new_cell: Vec<T>,
    scratch: Vec<T>,
    /// Products of the states `[batch, gates · hidden]`.
    products: Vec<T>,
}

impl<'a, T: Weights> Step<'a, T> {
    pub(super) fn new(
        ctx: &Context,
        op: &'a Recurrent,
        sizes: &Sizes,
        direction: usize,
        recurrent: &[T],
        bias: Option<&'a [T]>,
        peepholes: Option<&'a [T]>,
    ) -> Result<Self> {
        let n = op.cell.activations();
        let state = vec![T::ZERO; sizes.batch * sizes.hidden];
        let (first, last) =
            recurrent.split_at(columns(op.cell, sizes.gates, sizes.hidden) * sizes.hidden);
        let laid_out = |weight| T::laid_out(ctx, weight, sizes.hidden);
        let weights = [laid_out(first)?, laid_out(last)?];
        Ok(Self {
            cell: op.cell,
            sizes: *sizes,
            activations: &op.activations[direction * n..][..n],
            clip: op.clip.map(|clip| T::lit(clip.into())),
            weights,
            bias,
            peepholes,
            hidden: state.clone(),
            cell_state: state.clone(),
            new_hidden: state.clone(),
            new_cell: state.clone(),
            scratch: state,
            products: vec![T::ZERO; sizes.batch * sizes.gates * sizes.hidden],
        })
    }

    /// What each projected input starts from: both biases, except where one of them belongs inside
    /// a product with the reset gate.
    pub(super) fn projected_bias(&self) -> Vec<T> {
        let all = self.sizes.gates * self.sizes.hidden;
        let Some(bias) = self.bias else { return vec![T::ZERO; all] };
        let (input, recurrent) = bias.split_at(all);
        let mut sum = input.to_vec();
        let inside = match self.cell {
            Cell::Gru { linear_before_reset: true } => self.sizes.hidden,
            _ => 0,
        };
        for (s, r) in sum.iter_mut().zip(&recurrent[..all - inside]) {
            *s = *s + *r;
        }
        sum
    }

    /// Computes the states after step `t` from the projected inputs, which are overwritten.
    pub(super) fn run(&mut self, ctx: &Context, projected: &mut [T], t: usize) -> Result<()> {
        let Sizes { batch, hidden, gates, .. } = self.sizes;
        let (all, simd) = (gates * hidden, ctx.simd());
        let stride = self.sizes.stride() * all;
        let rows = &mut projected[self.sizes.row(t, 0) * all..];
        let n = columns(self.cell, self.sizes.gates, hidden);
        let products = &mut self.products[..batch * n];
        T::multiply(ctx, (batch, n, hidden), &self.hidden, &self.weights[0], products)?;
        for (b, products) in products.chunks_exact(n).enumerate() {
            add(&mut rows[b * stride..][..n], products);
        }
        match self.cell {
            Cell::Rnn => {
                for (b, new) in self.new_hidden.chunks_exact_mut(hidden).enumerate() {
                    new.copy_from_slice(&rows[b * stride..][..hidden]);
                }
                clip(simd, self.clip, &mut self.new_hidden);
                self.activations[0].apply(simd, &mut self.new_hidden);
            }
            Cell::Gru { linear_before_reset } => {
                self.gru(ctx, rows, stride, linear_before_reset)?;
            }
            Cell::Lstm { input_forget } => {
                for b in 0..batch {
                    self.lstm(simd, b, &mut rows[b * stride..][..all], input_forget);
                }
            }
        }
        Ok(())
    }

    /// Makes the state after the step of one sequence its state.
    pub(super) fn accept(&mut self, b: usize) -> &[T] {
        let range = b * self.sizes.hidden..(b + 1) * self.sizes.hidden;
        self.hidden[range.clone()].copy_from_slice(&self.new_hidden[range.clone()]);
        self.cell_state[range.clone()].copy_from_slice(&self.new_cell[range.clone()]);
        &self.hidden[range]
    }

    fn gru(&mut self, ctx: &Context, rows: &mut [T], stride: usize, linear: bool) -> Result<()> {
        let Sizes { batch, hidden, .. } = self.sizes;
        let simd = ctx.simd();
        for b in 0..batch {
            let gates = &mut rows[b * stride..][..2 * hidden];
            clip(simd, self.clip, gates);
            self.activations[0].apply(simd, gates);
        }
        let size = (batch, hidden, hidden);
        if linear {
            T::multiply(ctx, size, &self.hidden, &self.weights[1], &mut self.scratch)?;
            if let Some(bias) = self.bias {
                let bias = &bias[bias.len() - hidden..];
                self.scratch.chunks_exact_mut(hidden).for_each(|s| add(s, bias));
            }
            for (b, scratch) in self.scratch.chunks_exact(hidden).enumerate() {
                let (reset, new) = rows[b * stride + hidden..][..2 * hidden].split_at_mut(hidden);
                for (n, (r, s)) in new.iter_mut().zip(reset.iter().zip(scratch)) {
                    *n = *n + *r * *s;
                }
            }
        } else {
            for (b, scratch) in self.scratch.chunks_exact_mut(hidden).enumerate() {
                let reset = &rows[b * stride + hidden..][..hidden];
                let state = &self.hidden[b * hidden..][..hidden];
                for (s, (r, h)) in scratch.iter_mut().zip(reset.iter().zip(state)) {
                    *s = *r * *h;
                }
            }
            let products = &mut self.products[..batch * hidden];
            T::multiply(ctx, size, &self.scratch, &self.weights[1], products)?;
            for (b, products) in products.chunks_exact(hidden).enumerate() {
                add(&mut rows[b * stride + 2 * hidden..][..hidden], products);
            }
        }
        for b in 0..batch {
            let (update, rest) = rows[b * stride..][..3 * hidden].split_at_mut(hidden);
            let candidate = &mut rest[hidden..];
            clip(simd, self.clip, candidate);
            self.activations[1].apply(simd, candidate);
            let range = b * hidden..(b + 1) * hidden;
            let state = self.hidden[range.clone()].iter();
            let gates = update.iter().zip(&*candidate).zip(state);
            for (n, ((z, c), h)) in self.new_hidden[range].iter_mut().zip(gates) {
                *n = (T::ONE - *z) * *c + *z * *h;
            }
        }
        Ok(())
    }

    fn lstm(&mut self, simd: Simd, b: usize, row: &mut [T], input_forget: bool) {
        let n = self.sizes.hidden;
        let range = b * n..(b + 1) * n;
        let old = &self.cell_state[range.clone()];
        let (cell, hidden) = (&mut self.new_cell[range.clone()], &mut self.new_hidden[range]);
        let [f, g, h] = [self.activations[0], self.activations[1], self.activations[2]];
        let (input, rest) = row.split_at_mut(n);
        let (output, rest) = rest.split_at_mut(n);
        let (forget, candidate) = rest.split_at_mut(n);
        if let Some(p) = self.peepholes {
            add_product(input, &p[..n], old);
            add_product(forget, &p[2 * n..], old);
        }
        clip(simd, self.clip, input);
        f.apply(simd, input);
        if input_forget {
            forget.iter_mut().zip(&*input).for_each(|(f, i)| *f = T::ONE - *i);
        } else {
            clip(simd, self.clip, forget);
            f.apply(simd, forget);
        }
        clip(simd, self.clip, candidate);
        g.apply(simd, candidate);
        for (i, c) in cell.iter_mut().enumerate() {
            *c = forget[i] * old[i] + input[i] * candidate[i];
        }
        if let Some(p) = self.peepholes {
            add_product(output, &p[n..2 * n], cell);
        }
        clip(simd, self.clip, output);
        f.apply(simd, output);
        hidden.copy_from_slice(cell);
        clip(simd, self.clip, hidden);
        h.apply(simd, hidden);
        hidden.iter_mut().zip(&*output).for_each(|(h, o)| *h = *h * *o);
    }
}

/// Columns of the product of all states that each step begins with: a GRU's last gate multiplies
/// something else.
fn columns(cell: Cell, gates: usize, hidden: usize) -> usize {
    let gates = if matches!(cell, Cell::Gru { .. }) { 2 } else { gates };
    gates.saturating_mul(hidden)
}

/// Words of the weights of the states as [`Step`] lays them out; `None` when that overflows.
pub(super) fn words(cell: Cell, gates: usize, hidden: usize) -> Option<usize> {
    let first = columns(cell, gates, hidden);
    let last = gates.checked_mul(hidden)?.checked_sub(first)?;
    let words = |n| gemm::Packed::words(hidden, n);
    words(first)?.checked_add(words(last)?)
}

/// Numbers with a product whose right side is laid out once for many steps.
pub(super) trait Weights: Exp + Number {
    /// A weight `[n, k]` as [`Weights::multiply`] reads it.
    ///
    /// # Errors
    /// Out of memory.
    fn laid_out(ctx: &Context, weight: &[Self], k: usize) -> Result<Tensor>;

    /// `out = a · wᵀ` of `[m, k]` and `[n, k]`; the sizes are m, n and k.
    ///
    /// # Errors
    /// Out of memory.
    fn multiply(
        ctx: &Context,
        size: (usize, usize, usize),
        a: &[Self],
        weight: &Tensor,
        out: &mut [Self],
    ) -> Result<()>;
}

impl Weights for f32 {
    fn laid_out(ctx: &Context, weight: &[Self], k: usize) -> Result<Tensor> {
        let n = weight.len().checked_div(k).unwrap_or(0);
        let words = gemm::Packed::words(k, n)
            .ok_or_else(|| Error::invalid(format!("a weight of {n} x {k} is too large")))?;
        let mut packed = ctx.scratch(DType::F32, [words])?;
        gemm::pack(weight, (k, n), (1, k), packed.as_mut_slice()?);
        Ok(packed)
    }

    fn multiply(
        ctx: &Context,
        (m, n, k): (usize, usize, usize),
        a: &[Self],
        weight: &Tensor,
        out: &mut [Self],
    ) -> Result<()> {
        let packed = gemm::Packed::new(weight.as_slice()?, k, n)
            .ok_or_else(|| Error::invalid("the weight is laid out otherwise"))?;
        let rows = gemm::Rows { words: a, row: k };
        gemm::multiply(ctx, m, rows, packed, out, gemm::Word::F32, gemm::Epilogue::default());
        Ok(())
    }
}

impl Weights for f64 {
    fn laid_out(ctx: &Context, weight: &[Self], _: usize) -> Result<Tensor> {
        let mut copy = ctx.scratch(DType::F64, [weight.len()])?;
        copy.as_mut_slice()?.copy_from_slice(weight);
        Ok(copy)
    }

    fn multiply(
        ctx: &Context,
        size: (usize, usize, usize),
        a: &[Self],
        weight: &Tensor,
        out: &mut [Self],
    ) -> Result<()> {
        let (_, n, k) = size;
        product(ctx, size, Mat::rows(a, k), Mat::rows(weight.as_slice()?, k).t(), out, n, false)
    }
}

/// `out += x`, element by element.
fn add<T: Exp>(out: &mut [T], x: &[T]) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out = *out + *x);
}

/// `out += a · b`, element by element.
fn add_product<T: Exp>(out: &mut [T], a: &[T], b: &[T]) {
    for (o, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *o = *o + *a * *b;
    }
}

/// Bounds every element.
fn clip<T: Exp + Number>(simd: Simd, limit: Option<T>, x: &mut [T]) {
    let Some(limit) = limit else { return };
    dispatch(
        simd,
        #[inline(always)]
        || x.iter_mut().for_each(|x| *x = x.most(Number::neg(limit)).least(limit)),
    );
}
