//! Softmax and normalisation.

use super::{Case, cast, noise};
use lgp_compute::Op;
use lgp_compute::ops::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm, Softmax};
use lgp_memory::{DType, Tensor};

/// The tolerance of sums of many terms, which are rounded in another order.
const TOLERANCE: f32 = 1e-4;

pub(super) fn cases() -> Vec<Case> {
    [softmax(), over_last_axes(), over_channels()].into_iter().flatten().collect()
}

fn softmax() -> Vec<Case> {
    let mut cases = Vec::new();
    for (shape, axis, flatten) in [
        (vec![3, 5], -1, false),
        (vec![2, 1500], 1, false),
        (vec![2, 9, 40], 1, false),
        (vec![70, 1, 3], 0, false),
        (vec![2, 3, 4], 1, true),
        (vec![3, 0], -1, false),
    ] {
        for log in [false, true] {
            let op = Softmax { axis, log, flatten };
            let name = format!("{} {shape:?} {axis} {flatten}", op.name());
            cases.push(Case::new(name, op, vec![noise(&shape, 1)]).within(TOLERANCE));
        }
    }
    let softmax = || Softmax { axis: -1, log: false, flatten: false };
    let case = Case::new("Softmax", softmax(), vec![noise(&[3, 40], 1)]);
    cases.push(case.within(TOLERANCE).finished());
    let large = [1e4f32, -1e4, 9999., f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    let large = Tensor::from_slice([2, 3], &large).expect("six");
    cases.push(Case::new("Softmax of large numbers", softmax(), vec![large]));
    for dtype in [DType::F16, DType::BF16] {
        let x = cast(&noise(&[4, 33], 1), dtype);
        cases.push(Case::new(format!("Softmax {dtype}"), softmax(), vec![x]));
    }
    cases
}

fn over_last_axes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (shape, axis, parameter) in [
        (vec![3, 50], -1, vec![50]),
        (vec![2, 1300], -1, vec![1]),
        (vec![2, 3, 4, 5], 2, vec![4, 5]),
        (vec![2, 3, 4, 5], -2, vec![4, 1]),
        (vec![0, 4], -1, vec![4]),
    ] {
        let inputs = vec![noise(&shape, 1), noise(&parameter, 2), noise(&parameter, 3)];
        let name = format!("{shape:?} {axis} {parameter:?}");
        let layer = LayerNorm { axis, ..LayerNorm::default() };
        let case = Case::new(format!("LayerNorm {name}"), layer.clone(), inputs.clone());
        cases.push(case.within(TOLERANCE));
        let case = Case::new(format!("LayerNorm without bias {name}"), layer, inputs.clone());
        cases.push(case.absent(2).within(TOLERANCE));
        let rms = RmsNorm { axis, ..RmsNorm::default() };
        let case = Case::new(format!("RmsNorm {name}"), rms, inputs[..2].to_vec());
        cases.push(case.within(TOLERANCE));
    }
    let inputs = [noise(&[4, 33], 1), noise(&[33], 2), noise(&[33], 3)];
    let inputs = inputs.map(|x| cast(&x, DType::F16)).to_vec();
    cases.push(Case::new("LayerNorm f16", LayerNorm::default(), inputs));
    let inputs = vec![noise(&[4, 33], 1), noise(&[33], 2)];
    let case = Case::new("RmsNorm", RmsNorm::default(), inputs);
    cases.push(case.within(TOLERANCE).finished());
    // Long lines, which several work-groups share.
    for epsilon in [1e-5, 0.1] {
        let (layer, rms) = (LayerNorm { epsilon, ..LayerNorm::default() }, RmsNorm::default());
        let inputs = [noise(&[2, 9001], 1), noise(&[9001], 2), noise(&[9001], 3)];
        let case = Case::new("LayerNorm of long lines", layer, inputs.to_vec());
        cases.push(case.within(TOLERANCE).in_every_way());
        let case = Case::new("RmsNorm of long lines", rms, inputs[..2].to_vec());
        cases.push(case.within(TOLERANCE).finished());
    }
    // A mean that is large beside the deviations from it.
    let data: Vec<f32> = (0..100u8).map(|i| 1000. + f32::from(i % 7)).collect();
    let far = Tensor::from_slice([1, 100], &data).expect("a hundred");
    let inputs = vec![far, noise(&[100], 2)];
    cases.push(Case::new("LayerNorm far off", LayerNorm::default(), inputs).within(1e-3));
    cases
}

fn over_channels() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in [vec![2, 6, 5, 7], vec![1, 6], vec![2, 6, 1100], vec![1, 6, 9000]] {
        let inputs = |count: u32, entries: usize| {
            let mut inputs = vec![noise(&shape, 1)];
            inputs.extend((0..count).map(|i| noise(&[entries], 2 + i)));
            inputs
        };
        let name = |op: &str| format!("{op} {shape:?}");
        if shape.iter().product::<usize>() > 6 {
            let instance = InstanceNorm::default();
            cases.push(Case::new(name("InstanceNorm"), instance, inputs(2, 6)).within(TOLERANCE));
        }
        for entries in [3, 6] {
            let group = GroupNorm { groups: 3, epsilon: 1e-5 };
            let case = Case::new(name("GroupNorm"), group, inputs(2, entries));
            cases.push(case.within(TOLERANCE));
        }
        let mut batch = inputs(4, 6);
        batch[4] = Tensor::from_slice([6], &[0.5f32, 1., 2., 0.1, 3., 1.]).expect("six");
        let case = Case::new(name("BatchNorm"), BatchNorm::default(), batch.clone());
        cases.push(case.within(TOLERANCE));
        let case = Case::new(name("BatchNorm"), BatchNorm::default(), batch);
        cases.push(case.within(TOLERANCE).finished());
    }
    cases
}
