//! One step of each cell, for a whole batch.

use super::sizes::Sizes;
use super::weights::Weights;
use super::{Activation, Cell, Recurrent};
use crate::error::Result;
use crate::isa::Simd;
use crate::number::Number;
use crate::op::Context;
use crate::ops::unary::Exp;
use crate::simd::dispatch;

/// What a step of one direction needs, and the states that it changes.
pub(super) struct Step<'a, T> {
    cell: Cell,
    sizes: Sizes,
    activations: &'a [Activation],
    clip: Option<T>,
    /// The laid-out weights of the states: those of all gates, or of a GRU's first two and of its
    /// last one.
    weights: [&'a [T]; 2],
    /// Columns of the first of them.
    columns: usize,
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
    /// `weights` are the recurrent weights of the direction, laid out.
    pub(super) fn new(
        op: &'a Recurrent,
        sizes: &Sizes,
        direction: usize,
        weights: &'a [T],
        bias: Option<&'a [T]>,
        peepholes: Option<&'a [T]>,
    ) -> Self {
        let n = op.cell.activations();
        let state = vec![T::ZERO; sizes.batch * sizes.hidden];
        let columns = sizes.first_columns(op);
        let first = T::words(columns, sizes.hidden).unwrap_or(0).min(weights.len());
        Self {
            cell: op.cell,
            sizes: *sizes,
            activations: &op.activations[direction * n..][..n],
            clip: op.clip.map(|clip| T::lit(clip.into())),
            weights: weights.split_at(first).into(),
            columns,
            bias,
            peepholes,
            hidden: state.clone(),
            cell_state: state.clone(),
            new_hidden: state.clone(),
            new_cell: state.clone(),
            scratch: state,
            products: vec![T::ZERO; sizes.batch * sizes.gates * sizes.hidden],
        }
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
        let n = self.columns;
        let products = &mut self.products[..batch * n];
        T::multiply(ctx, (batch, n, hidden), &self.hidden, self.weights[0], None, products)?;
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
            let bias = self.bias.map(|bias| &bias[bias.len() - hidden..]);
            T::multiply(ctx, size, &self.hidden, self.weights[1], bias, &mut self.scratch)?;
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
            T::multiply(ctx, size, &self.scratch, self.weights[1], None, products)?;
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
