//! Tries the stages of a target one after the other, measures after each, and keeps what pays.

use super::ledger::{Ledger, Measured, Outcome, Stage};
use super::observe::Work;
use super::plans::{Goal, Plan, Target};
use super::progress::Progress;
use super::quality::{Quality, compare};
use super::runner::{LatencyMs, Runner};
use super::samples::Samples;
use super::technique::{Changed, Scene, Technique};
use super::techniques;
use crate::error::{Error, Result};
use lgp_inference::Model;
use lgp_memory::NamedTensor;
use std::path::PathBuf;
use std::time::Instant;

/// A change pays if it saves at least this share; less may be the machine's noise.
const GAIN_MIN: f64 = 0.03;

/// Settings of a pipeline.
#[derive(Debug, Clone)]
pub struct OptimizeConfig {
    /// What the model is made for.
    pub target: Target,
    /// The loss that is allowed; `None` for the target's own.
    pub drop_max: Option<f64>,
    /// A folder in which finished stages are kept, so that a later run goes on after them.
    pub progress: Option<PathBuf>,
}

/// A step of the work, for progress bars.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// The original is measured.
    Original,
    /// A technique is tried with a strength.
    Try {
        /// The technique.
        technique: &'a str,
        /// The strength.
        strength: f64,
    },
    /// A stage has ended.
    Ended(&'a Stage),
}

/// The result of a pipeline.
#[derive(Debug, Clone)]
pub struct Optimized {
    /// The model.
    pub model: Model,
    /// Its record.
    pub ledger: Ledger,
}

/// Makes a model smaller or faster for a target, within the target's bound.
///
/// # Errors
/// Samples that do not fit the model, a setting out of range, a model that does not run;
/// [`Error::Stopped`]. The stages that had ended are kept in the folder of
/// [`OptimizeConfig::progress`].
pub fn optimize(
    model: &Model,
    samples: &Samples,
    runner: &dyn Runner,
    work: &Work,
    config: &OptimizeConfig,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Optimized> {
    let plan = config.target.plan();
    let drop_max = config.drop_max.unwrap_or(plan.drop_max);
    if !(0. ..=1.).contains(&drop_max) {
        let value = drop_max.to_string();
        return Err(Error::Setting { name: "the drop", value, expected: "0 to 1" });
    }
    let settings = format!("{} {drop_max} {}", config.target, runner.device());
    let progress = Progress::new(config.progress.as_deref(), model, samples, &settings)?;
    tell(Event::Original);
    let scene = Scene { samples, work, runner };
    let mut pipeline = Pipeline::new(model, plan, drop_max, scene, progress)?;
    for name in plan.stages {
        pipeline.stage(techniques::find(name)?, tell)?;
    }
    pipeline.finish(model)
}

struct Pipeline<'a> {
    plan: &'a Plan,
    drop_max: f64,
    scene: Scene<'a>,
    progress: Progress,
    /// The original's outputs on the part that judges.
    outputs: Vec<Vec<NamedTensor>>,
    original: Quality,
    current: Model,
    stages: Vec<Stage>,
}

impl<'a> Pipeline<'a> {
    fn new(
        model: &Model,
        plan: &'a Plan,
        drop_max: f64,
        scene: Scene<'a>,
        progress: Progress,
    ) -> Result<Self> {
        let part = &scene.samples.evaluation;
        let outputs = scene.runner.outputs(model, &part.runs)?;
        let original = compare(&outputs, &outputs, part)?;
        let (current, stages) = progress.load()?.unwrap_or_else(|| (model.clone(), Vec::new()));
        Ok(Self { plan, drop_max, scene, progress, outputs, original, current, stages })
    }

    fn stage(&mut self, technique: &dyn Technique, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let done = self.stages.iter().any(|stage| stage.technique == technique.name());
        if done {
            return Ok(());
        }
        self.scene.work.check()?;
        let start = Instant::now();
        let mut stage = match self.strongest(technique, tell)? {
            Found::Nothing => skipped("there is nothing that it could change"),
            Found::Broken { strength, reason } => {
                Stage { strength: Some(strength), outcome: Outcome::RolledBack, ..skipped(&reason) }
            }
            Found::Within { strength, changed, quality } => {
                self.judged(strength, *changed, quality)?
            }
        };
        technique.name().clone_into(&mut stage.technique);
        stage.seconds = start.elapsed().as_secs_f64();
        tell(Event::Ended(&stage));
        self.stages.push(stage);
        self.progress.save(&self.current, &self.stages)
    }

    /// The strongest change within the bound. The loss is taken to grow with the strength, so
    /// halving finds it.
    fn strongest(
        &self,
        technique: &dyn Technique,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Found> {
        let strengths = technique.strengths();
        let Some(apply) = technique.prepare(&self.current, &self.scene)? else {
            return Ok(Found::Nothing);
        };
        let allowed = self.allowed();
        let (mut low, mut high) = (0, strengths.len());
        let mut best = Found::Nothing;
        // The strongest is tried first: where it keeps within the bound, nothing else is tried.
        let mut at = strengths.len().saturating_sub(1);
        while low < high {
            let strength = strengths[at];
            tell(Event::Try { technique: technique.name(), strength });
            let Some(changed) = apply(strength)? else {
                // Nothing changes at this strength or a milder one.
                low = at + 1;
                at = usize::midpoint(low, high).min(high.saturating_sub(1));
                continue;
            };
            let broken = match self.quality(&changed.model) {
                Ok(quality) => {
                    let drop = quality.drop_from(&self.original);
                    if drop <= allowed {
                        best = Found::Within { strength, changed: Box::new(changed), quality };
                        None
                    } else {
                        Some(format!("it would lose {drop:.4}, allowed are {allowed:.4}"))
                    }
                }
                Err(error @ Error::Diverged { .. }) => Some(error.to_string()),
                Err(other) => return Err(other),
            };
            match broken {
                None => low = at + 1,
                Some(reason) => {
                    if !matches!(best, Found::Within { .. }) {
                        best = Found::Broken { strength, reason };
                    }
                    high = at;
                }
            }
            at = usize::midpoint(low, high).min(high.saturating_sub(1));
        }
        Ok(best)
    }

    /// The loss that all stages up to the next may have together: the first stages leave their
    /// share to the later ones.
    fn allowed(&self) -> f64 {
        let share = (self.stages.len() + 1) as f64 / self.plan.stages.len().max(1) as f64;
        self.drop_max * share.min(1.)
    }

    fn quality(&self, model: &Model) -> Result<Quality> {
        let part = &self.scene.samples.evaluation;
        let outputs = self.scene.runner.outputs(model, &part.runs)?;
        compare(&self.outputs, &outputs, part)
    }

    /// Keeps a change that is within the bound, if it pays on the device.
    fn judged(&mut self, strength: f64, changed: Changed, quality: Quality) -> Result<Stage> {
        let quality_before = self.quality(&self.current)?;
        let pair = [&self.current, &changed.model];
        let [before, candidate] = self.measured(pair, [quality_before, quality])?;
        let (pays, reason) = verdict(self.plan.goal, &before, &candidate);
        let outcome = if pays { Outcome::Kept } else { Outcome::RolledBack };
        if pays {
            self.current = changed.model;
        }
        Ok(Stage {
            strength: Some(strength),
            outcome,
            candidate: Some(candidate),
            before: Some(before),
            notes: changed.notes,
            ..skipped(&reason)
        })
    }

    fn measured(&self, models: [&Model; 2], qualities: [Quality; 2]) -> Result<[Measured; 2]> {
        let runner = self.scene.runner;
        let runs = &self.scene.samples.evaluation.runs;
        let Some(inputs) = runs.first() else { return Err(Error::samples("there are no runs")) };
        let times = runner.latencies(&models, inputs)?;
        let one = |at: usize| -> Result<Measured> {
            Ok(Measured {
                file_bytes: models[at].to_onnx()?.len() as u64,
                memory_bytes: runner.memory_bytes(models[at], inputs)?,
                latency_ms: times.get(at).copied().unwrap_or(LatencyMs { min: 0., median: 0. }),
                quality: qualities[at],
            })
        };
        Ok([one(0)?, one(1)?])
    }

    fn finish(self, original: &Model) -> Result<Optimized> {
        let quality = self.quality(&self.current)?;
        let [before, result] =
            self.measured([original, &self.current], [self.original, quality])?;
        let ledger = Ledger {
            target: self.plan.name.to_owned(),
            drop_max: self.drop_max,
            device: self.scene.runner.device(),
            original: before,
            result,
            stages: self.stages,
            judged_on_calibration: self.scene.samples.shared,
        };
        self.progress.clear(ledger.stages.len())?;
        Ok(Optimized { model: self.current, ledger })
    }
}

enum Found {
    /// The technique changes nothing.
    Nothing,
    /// Every strength that was tried breaks the bound.
    Broken { strength: f64, reason: String },
    /// The strongest change within the bound.
    Within { strength: f64, changed: Box<Changed>, quality: Quality },
}

fn skipped(reason: &str) -> Stage {
    Stage {
        technique: String::new(),
        strength: None,
        outcome: Outcome::Skipped,
        reason: reason.to_owned(),
        candidate: None,
        before: None,
        notes: Vec::new(),
        seconds: 0.,
    }
}

/// Whether a change pays, and why.
fn verdict(goal: Goal, before: &Measured, candidate: &Measured) -> (bool, String) {
    let share = |now: f64, then: f64| if then > 0. { now / then } else { 1. };
    let time = share(candidate.latency_ms.median, before.latency_ms.median);
    let file = share(candidate.file_bytes as f64, before.file_bytes as f64);
    let memory = share(candidate.memory_bytes as f64, before.memory_bytes as f64);
    let (less, more) = (1. - GAIN_MIN, 1. + GAIN_MIN);
    let bytes = file.min(memory);
    let pays = match goal {
        Goal::Latency => time <= less,
        Goal::Memory => bytes <= less && file.max(memory) <= more,
        Goal::File => file <= less,
        Goal::Both => (time <= less && bytes <= more) || (bytes <= less && time <= more),
    };
    let found = format!("{time:.2} of the time, {file:.2} of the file, {memory:.2} of the memory");
    let verb = if pays { "it pays" } else { "it does not pay" };
    (pays, format!("{verb}: {found}"))
}

#[cfg(test)]
mod tests;
