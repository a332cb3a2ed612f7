//! Recurrent layers.

use super::{Case, cast, noise};
use lgp_compute::ops::{Activation as A, Cell, Direction, Recurrent};
use lgp_memory::{DType, Tensor};

/// The tolerance of sums of many terms, which every step rounds in another order.
const TOLERANCE: f32 = 1e-4;
const STEPS: usize = 4;
const BATCH: usize = 3;
const FEATURES: usize = 5;
const HIDDEN: usize = 6;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let gru = |linear_before_reset| Cell::Gru { linear_before_reset };
    let lstm = |input_forget| Cell::Lstm { input_forget };
    for (cell, gates) in
        [(Cell::Rnn, 1), (gru(false), 3), (gru(true), 3), (lstm(false), 4), (lstm(true), 4)]
    {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional] {
            let twice = direction == Direction::Bidirectional;
            let mut op = Recurrent { direction, ..Recurrent::new(cell) };
            if twice {
                // The second direction has functions of its own.
                op.activations.extend(vec![A::Sigmoid; cell.activations()]);
            }
            let name = format!("{cell:?} {direction:?}");
            let inputs = inputs(gates, if twice { 2 } else { 1 });
            let mut case = Case::new(name.clone(), op.clone(), inputs.clone()).within(TOLERANCE);
            for i in 3..inputs.len() {
                case = case.absent(i);
            }
            cases.push(case);
            cases.push(Case::new(format!("{name}, all inputs"), op, inputs).within(TOLERANCE));
        }
    }
    let clipped = Recurrent {
        clip: Some(0.3),
        batch_first: true,
        activations: vec![A::HardSigmoid { alpha: 0.2, beta: 0.5 }, A::Relu, A::Softsign],
        ..Recurrent::new(lstm(false))
    };
    let mut by_batch = inputs(4, 1);
    by_batch[0] = noise(&[BATCH, STEPS, FEATURES], 1);
    by_batch[5] = noise(&[BATCH, 1, HIDDEN], 5);
    by_batch[6] = noise(&[BATCH, 1, HIDDEN], 6);
    cases.push(Case::new("Lstm, the batch first", clipped, by_batch).within(TOLERANCE));
    let halves = inputs(4, 1)[..4].iter().map(|x| cast(x, DType::F16)).collect();
    cases.push(Case::new("Lstm f16", Recurrent::new(lstm(false)), halves));
    cases
}

/// All inputs of a layer; peepholes and the cell state for an LSTM only.
fn inputs(gates: usize, directions: usize) -> Vec<Tensor> {
    let all = gates * HIDDEN;
    let mut inputs = vec![
        noise(&[STEPS, BATCH, FEATURES], 1),
        noise(&[directions, all, FEATURES], 2),
        noise(&[directions, all, HIDDEN], 3),
        noise(&[directions, 2 * all], 4),
        Tensor::from_slice([BATCH], &[4i32, 0, 2]).expect("three"),
        noise(&[directions, BATCH, HIDDEN], 5),
    ];
    if gates == 4 {
        inputs.push(noise(&[directions, BATCH, HIDDEN], 6));
        inputs.push(noise(&[directions, 3 * HIDDEN], 7));
    }
    inputs
}
