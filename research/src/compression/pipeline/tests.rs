//! Keeping, rolling back and going on, with a device whose times are made up.

use super::*;
use crate::compression::observe::work;
use crate::compression::runner::LocalRunner;
use crate::compression::samples::RunInputs;
use lgp_inference::GraphBuilder;
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
use std::cell::Cell;

fn measured(ms: f64, file_bytes: u64, memory_bytes: u64) -> Measured {
    let quality =
        Quality { accuracy: None, output_error: 0., kl_divergence: None, agreement: None };
    let latency_ms = LatencyMs { min: ms, median: ms };
    Measured { file_bytes, memory_bytes, latency_ms, quality }
}

#[test]
fn a_stage_pays_by_what_the_target_asks_for() {
    let before = measured(10., 1000, 5000);
    let cases = [
        (Goal::Latency, measured(9., 2000, 9000), true),
        (Goal::Latency, measured(9.9, 100, 100), false),
        (Goal::Memory, measured(99., 1000, 4000), true),
        (Goal::Memory, measured(1., 1000, 5000), false),
        (Goal::Memory, measured(10., 500, 9000), false),
        (Goal::File, measured(10., 500, 9000), true),
        (Goal::File, measured(1., 1000, 100), false),
        (Goal::Both, measured(12., 100, 100), false),
        (Goal::Both, measured(10.1, 100, 5000), true),
        (Goal::Both, measured(5., 1000, 5000), true),
        (Goal::Both, measured(5., 1200, 6000), false),
    ];
    for (goal, candidate, pays) in cases {
        let (found, reason) = verdict(goal, &before, &candidate);
        assert_eq!(found, pays, "{goal:?}: {reason}");
    }
}

/// Runs on the CPU; the second of two models takes `factor` as long as the first. Fails when it is
/// asked for times once more than `lives` says.
struct MadeUp {
    inner: LocalRunner,
    factor: f64,
    lives: Cell<usize>,
}

impl MadeUp {
    fn new(factor: f64, lives: usize) -> Self {
        let inner = LocalRunner::new("cpu", Vec::new(), work());
        Self { inner, factor, lives: Cell::new(lives) }
    }
}

impl Runner for MadeUp {
    fn device(&self) -> String {
        "made up".to_owned()
    }

    fn outputs(&self, model: &Model, runs: &[RunInputs]) -> Result<Vec<Vec<NamedTensor>>> {
        self.inner.outputs(model, runs)
    }

    fn latencies(&self, models: &[&Model], _: &RunInputs) -> Result<Vec<LatencyMs>> {
        let left = self.lives.get().checked_sub(1).ok_or(Error::Stopped)?;
        self.lives.set(left);
        let at = |index: usize| 10. * if index == 0 { 1. } else { self.factor };
        Ok((0..models.len()).map(|i| LatencyMs { min: at(i), median: at(i) }).collect())
    }

    fn memory_bytes(&self, model: &Model, inputs: &RunInputs) -> Result<u64> {
        self.inner.memory_bytes(model, inputs)
    }
}

fn model() -> Model {
    let dims = vec![Dim::Symbol("n".into()), Dim::Known(64)];
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) };
    let mut g = GraphBuilder::new("g");
    let mut x = g.input("x", ty);
    for layer in 0..3 {
        let value = |i: usize| ((i * 7919 + layer * 31) % 2003) as f32 / 8000. - 0.125;
        let values: Vec<f32> = (0..64 * 64).map(value).collect();
        let w = g.initializer(format!("w{layer}"), Tensor::from_slice([64, 64], &values).unwrap());
        x = g.node("MatMul", &[x, w], []);
        x = g.node("Tanh", &[x], []);
    }
    g.output("y", x, TensorType { dtype: DType::F32, shape: None });
    g.finish().unwrap()
}

fn samples(model: &Model) -> Samples {
    let values: Vec<f32> = (0..16 * 64).map(|i| ((i * 31) % 97) as f32 / 50. - 1.).collect();
    let x = NamedTensor::new("x", Tensor::from_slice([16, 64], &values).unwrap());
    Samples::new(model, vec![vec![x]], None).unwrap()
}

fn config(target: Target) -> OptimizeConfig {
    OptimizeConfig { target, drop_max: Some(1.), progress: None }
}

#[test]
fn what_does_not_pay_on_the_device_is_rolled_back() {
    let model = model();
    let samples = samples(&model);
    for (factor, kept) in [(0.5, true), (1.5, false)] {
        let runner = MadeUp::new(factor, usize::MAX);
        let config = config(Target::Speed);
        let done = optimize(&model, &samples, &runner, &work(), &config, &mut |_| ()).unwrap();
        let stage = &done.ledger.stages[done.ledger.stages.len() - 1];
        let wanted = if kept { Outcome::Kept } else { Outcome::RolledBack };
        assert_eq!(stage.outcome, wanted, "{}", stage.reason);
        assert_eq!(done.model == model, !kept);
        assert!(stage.candidate.is_some() && stage.before.is_some());
    }
}

#[test]
fn what_loses_too_much_is_rolled_back() {
    let model = model();
    let samples = samples(&model);
    let config = OptimizeConfig { drop_max: Some(0.), ..config(Target::Extreme) };
    let runner = MadeUp::new(0.5, usize::MAX);
    let done = optimize(&model, &samples, &runner, &work(), &config, &mut |_| ()).unwrap();
    let drop = done.ledger.result.quality.drop_from(&done.ledger.original.quality);
    assert!(drop <= 0., "{drop}");
    let refused = OptimizeConfig { drop_max: Some(1.5), ..config };
    let error = optimize(&model, &samples, &runner, &work(), &refused, &mut |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "the drop is 1.5, expected 0 to 1");
}

#[test]
fn a_run_that_was_ended_goes_on_after_its_last_stage() {
    let model = model();
    let samples = samples(&model);
    let folder = tempfile::tempdir().unwrap();
    let progress = folder.path().join("progress");
    let config = OptimizeConfig { progress: Some(progress.clone()), ..config(Target::Balanced) };
    let tries = |lives: usize| {
        let mut tried = Vec::new();
        let runner = MadeUp::new(0.5, lives);
        let done = optimize(&model, &samples, &runner, &work(), &config, &mut |event| {
            if let Event::Try { technique, .. } = event {
                tried.push(technique.to_owned());
            }
        });
        (done, tried)
    };
    let (first, tried) = tries(1);
    assert!(matches!(first, Err(Error::Stopped)) && !tried.is_empty());
    let done = std::fs::read_to_string(progress.join("stages.json")).unwrap();
    let ended = tried.iter().filter(|name| done.contains(name.as_str())).count();
    // Other samples would give other stages.
    let others = vec![vec![NamedTensor::new("x", Tensor::zeros(DType::F32, [8, 64]).unwrap())]];
    let others = Samples::new(&model, others, None).unwrap();
    let kept = |samples: &Samples| {
        let settings = format!("{} 1 made up", Target::Balanced);
        let progress = Progress::new(Some(&progress), &model, samples, &settings).unwrap();
        progress.load().unwrap().is_some()
    };
    assert!(kept(&samples) && !kept(&others));
    // Files of others are not removed with the progress.
    std::fs::write(progress.join("notes.txt"), "mine").unwrap();
    let (second, again) = tries(usize::MAX);
    let second = second.unwrap();
    let left: Vec<_> = std::fs::read_dir(&progress).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(left, [progress.join("notes.txt")]);
    std::fs::remove_file(progress.join("notes.txt")).unwrap();
    assert!(again.iter().all(|name| !done.contains(name.as_str())), "{again:?} after {done}");
    assert!(ended > 0);
    // The same as without an end.
    let (whole, _) = tries(usize::MAX);
    assert_eq!(whole.unwrap().model, second.model);
    assert!(std::fs::read_dir(&progress).is_err(), "an empty folder goes");
}
