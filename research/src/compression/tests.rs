//! The pipeline on the digits model: every target keeps its bound on rows that it was not
//! calibrated on.

use super::observe::work;
use super::*;
use crate::digits::{DigitSet, SIDE};
use lgp_inference::Model;
use lgp_memory::{NamedTensor, Tensor};

fn digits() -> (Model, Samples) {
    let data = include_bytes!("../../../apps/cli/assets/digits/digits.csv.gz");
    let model = include_bytes!("../../../apps/cli/assets/digits/digits.onnx");
    let (_, test) = DigitSet::read_split(data.as_slice()).unwrap();
    let model = Model::from_bytes(model, None).unwrap();
    let images = Tensor::from_slice([test.len(), 1, SIDE, SIDE], &test.pixels).unwrap();
    let runs = vec![vec![NamedTensor::new("image", images)]];
    let labels = test.labels.iter().map(|label| usize::from(*label)).collect();
    let samples = Samples::new(&model, runs, Some(labels)).unwrap();
    (model, samples)
}

fn optimized(target: Target) -> Optimized {
    let (model, samples) = digits();
    let runner = LocalRunner::new("cpu", Vec::new(), work());
    let config = OptimizeConfig { target, drop_max: None, progress: None };
    optimize(&model, &samples, &runner, &work(), &config, &mut |_| ()).unwrap()
}

#[test]
fn every_target_keeps_its_bound() {
    for plan in PLANS {
        let Optimized { model, ledger } = optimized(plan.target);
        let drop = ledger.result.quality.drop_from(&ledger.original.quality);
        assert!(drop <= plan.drop_max, "{}: {drop}", plan.name);
        assert_eq!(ledger.stages.len(), plan.stages.len());
        assert_eq!(ledger.result.file_bytes, model.to_onnx().unwrap().len() as u64);
    }
}
