//! Recurrent layers against their equations, one scalar at a time.

use super::{Activation, Cell, Direction, Recurrent};
use crate::op::{Op, ValueInfo};
use crate::rewrite::{Hints, Operand};
use crate::testing::{assert_close, constant, fails, noise, run_all, t};
use lgp_memory::Tensor;

fn sigmoid(x: f32) -> f32 {
    1. / (1. + (-x).exp())
}

/// The hidden state of one unit of one sequence after each step, from the equations.
struct Naive<'a> {
    op: &'a Recurrent,
    w: &'a [f32],
    r: &'a [f32],
    b: &'a [f32],
    p: &'a [f32],
    n: usize,
    features: usize,
}

impl Naive<'_> {
    fn gate(&self, gate: usize, unit: usize, x: &[f32], h: &[f32]) -> (f32, f32) {
        let row = gate * self.n + unit;
        let all = self.op.cell.gates() * self.n;
        let wx: f32 = (0..self.features).map(|i| x[i] * self.w[row * self.features + i]).sum();
        let rh: f32 = (0..self.n).map(|i| h[i] * self.r[row * self.n + i]).sum();
        (wx + self.b[row], rh + self.b[all + row])
    }

    fn step(&self, x: &[f32], h: &[f32], c: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let units = 0..self.n;
        match self.op.cell {
            Cell::Rnn => {
                let new = units.map(|u| {
                    let (a, b) = self.gate(0, u, x, h);
                    (a + b).tanh()
                });
                (new.collect(), c.to_vec())
            }
            Cell::Gru { linear_before_reset } => {
                let z: Vec<f32> =
                    units.clone().map(|u| both(self.gate(0, u, x, h))).map(sigmoid).collect();
                let r: Vec<f32> =
                    units.clone().map(|u| both(self.gate(1, u, x, h))).map(sigmoid).collect();
                let reset: Vec<f32> = r.iter().zip(h).map(|(r, h)| r * h).collect();
                let new = units.map(|u| {
                    let candidate = if linear_before_reset {
                        let (a, b) = self.gate(2, u, x, h);
                        a + r[u] * b
                    } else {
                        both(self.gate(2, u, x, &reset))
                    };
                    (1. - z[u]) * candidate.tanh() + z[u] * h[u]
                });
                (new.collect(), c.to_vec())
            }
            Cell::Lstm { input_forget } => {
                let (mut hidden, mut cell) = (vec![], vec![]);
                for u in units {
                    let gate = |g| both(self.gate(g, u, x, h));
                    let i = sigmoid(gate(0) + self.p[u] * c[u]);
                    let f = sigmoid(gate(2) + self.p[2 * self.n + u] * c[u]);
                    let f = if input_forget { 1. - i } else { f };
                    let new = f * c[u] + i * gate(3).tanh();
                    let o = sigmoid(gate(1) + self.p[self.n + u] * new);
                    cell.push(new);
                    hidden.push(o * new.tanh());
                }
                (hidden, cell)
            }
        }
    }
}

fn both((a, b): (f32, f32)) -> f32 {
    a + b
}

fn slice(x: &Tensor) -> &[f32] {
    x.as_slice().unwrap()
}

#[test]
fn layers_follow_their_equations() {
    let (steps, batch, features, n) = (4, 3, 2, 5);
    let lengths = [4usize, 2, 0];
    let x = noise(&[steps, batch, features], 1);
    for cell in [
        Cell::Rnn,
        Cell::Gru { linear_before_reset: false },
        Cell::Gru { linear_before_reset: true },
        Cell::Lstm { input_forget: false },
        Cell::Lstm { input_forget: true },
    ] {
        let g = cell.gates();
        let mut op = Recurrent::new(cell);
        op.direction = Direction::Bidirectional;
        op.activations = [op.activations.clone(), op.activations].concat();
        let w = noise(&[2, g * n, features], 2);
        let r = noise(&[2, g * n, n], 3);
        let b = noise(&[2, 2 * g * n], 4);
        let lens = t(&[batch], &lengths.map(|n| i32::try_from(n).unwrap()));
        let (h0, c0) = (noise(&[2, batch, n], 5), noise(&[2, batch, n], 6));
        let p = noise(&[2, 3 * n], 7);
        let mut inputs = vec![Some(&x), Some(&w), Some(&r), Some(&b), Some(&lens), Some(&h0)];
        if matches!(cell, Cell::Lstm { .. }) {
            inputs.extend([Some(&c0), Some(&p)]);
        }
        let out = run_all(&op, &inputs).unwrap();
        let mut y = vec![0f32; steps * 2 * batch * n];
        let (mut last_h, mut last_c) = (slice(&h0).to_vec(), slice(&c0).to_vec());
        for d in 0..2 {
            let part = |x: &'_ Tensor| -> Vec<f32> {
                let half = x.len() / 2;
                slice(x)[d * half..][..half].to_vec()
            };
            let (w, r, b, p) = (part(&w), part(&r), part(&b), part(&p));
            let naive = Naive { op: &op, w: &w, r: &r, b: &b, p: &p, n, features };
            for s in 0..batch {
                let at = (d * batch + s) * n;
                let (mut h, mut c) = (last_h[at..][..n].to_vec(), last_c[at..][..n].to_vec());
                for i in 0..lengths[s] {
                    let step = if d == 1 { lengths[s] - 1 - i } else { i };
                    let x = &slice(&x)[(step * batch + s) * features..][..features];
                    (h, c) = naive.step(x, &h, &c);
                    y[((step * 2 + d) * batch + s) * n..][..n].copy_from_slice(&h);
                }
                last_h[at..][..n].copy_from_slice(&h);
                last_c[at..][..n].copy_from_slice(&c);
            }
        }
        assert_close(&out[0], &t(&[steps, 2, batch, n], &y), 1e-5);
        assert_eq!(prepared(&op, &inputs), out);
        assert_close(&out[1], &t(&[2, batch, n], &last_h), 1e-5);
        if matches!(cell, Cell::Lstm { .. }) {
            assert_close(&out[2], &t(&[2, batch, n], &last_c), 1e-5);
        }
    }
}

/// The outputs with weights that were laid out before.
fn prepared(op: &Recurrent, inputs: &[Option<&Tensor>]) -> Vec<Tensor> {
    let infos: Vec<Option<ValueInfo>> =
        inputs.iter().map(|x| x.map(|x| constant(x.clone()))).collect();
    let infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
    let hints = Hints { isa: None, bf16: false, on_device: false };
    let step = op.prepared(&infos, hints).unwrap().unwrap();
    let read = step.inputs.iter().map(|operand| match operand {
        Operand::Input(i) => inputs[*i],
        Operand::Constant(laid_out) => Some(laid_out),
        Operand::Absent | Operand::Made(_) => None,
    });
    let read: Vec<Option<&Tensor>> = read.collect();
    run_all(&*step.op.unwrap(), &read).unwrap()
}

#[test]
fn the_batch_may_come_first() {
    let swap = crate::ops::Transpose { perm: Some(vec![1, 0, 2]) };
    let x = noise(&[4, 3, 2], 1);
    let (w, r) = (noise(&[1, 15, 2], 2), noise(&[1, 15, 5], 3));
    let steps_first = Recurrent::new(Cell::Gru { linear_before_reset: false });
    let batch_first = Recurrent { batch_first: true, ..steps_first.clone() };
    let want = run_all(&steps_first, &[Some(&x), Some(&w), Some(&r)]).unwrap();
    let swapped = crate::testing::run(&swap, &[&x]);
    let got = run_all(&batch_first, &[Some(&swapped), Some(&w), Some(&r)]).unwrap();
    let back = crate::ops::Transpose { perm: Some(vec![1, 2, 0, 3]) };
    assert_close(&crate::testing::run(&back, &[&got[0]]), &want[0], 1e-6);
    assert_close(&crate::testing::run(&swap, &[&got[1]]), &want[1], 1e-6);
}

#[test]
fn inputs_of_functions_are_clipped() {
    let one = t(&[1, 1, 1], &[3f32]);
    for (activation, clip, want) in [
        (Activation::Affine { alpha: 2., beta: 1. }, Some(4.), 9f32),
        (Activation::Affine { alpha: 2., beta: 1. }, None, 19.),
        (Activation::ThresholdedRelu { alpha: 10. }, None, 0.),
        (Activation::ScaledTanh { alpha: 2., beta: 1. }, None, 2.),
        (Activation::HardSigmoid { alpha: 0.01, beta: 0.5 }, None, 0.59),
        (Activation::Softsign, None, 0.9),
        (Activation::Relu, Some(0.5), 0.5),
        (Activation::LeakyRelu { alpha: 0.5 }, None, 9.),
        (Activation::Elu { alpha: 0.5 }, None, 9.),
        (Activation::Softplus, None, 9.000_123),
    ] {
        let op = Recurrent { activations: vec![activation], clip, ..Recurrent::new(Cell::Rnn) };
        let out = run_all(&op, &[Some(&one), Some(&one), Some(&one)]).unwrap();
        assert_close(&out[1], &t(&[1, 1, 1], &[want]), 1e-6);
    }
    let op = Recurrent::new(Cell::Rnn);
    let lens = t(&[1], &[2i32]);
    let bias = t(&[1, 2], &[0f32, 0.]);
    assert!(fails(&op, &[&one, &one, &one, &bias, &lens]).contains("length is 2, expected 0 to 1"));
    assert!(fails(&op, &[&one, &one, &noise(&[1, 2, 2], 0)]).contains("dimension 1 of the weight"));
}
