//! This engine beside ONNX Runtime, OpenVINO, rten and tract: same models, same inputs, one
//! machine, taking turns.
//!
//! Each engine is a process that loads a model and answers a line protocol. Only one is awake at a
//! time: the others are stopped, so that threads which spin while they wait cost nobody anything.

mod cases;
mod engines;
mod inputs;
mod nets;
mod process;
mod report;

use super::run::{Better, Run};
use crate::{cmd, python};
use anyhow::{Context, Result, ensure};
use cases::Case;
use engines::Engine;
use nets::{NETS, Net};
use process::{Peer, Programs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How much is measured.
pub(super) struct Effort {
    /// Turns of this engine, ONNX Runtime and OpenVINO.
    rounds: usize,
    /// Turns of the others, which are slower by more than a turn varies.
    rounds_of_others: usize,
    /// How long a turn should last.
    round_ms: f64,
    /// How often a model is loaded to find out how long that takes.
    loads: usize,
}

impl Effort {
    pub(super) const FULL: Self =
        Self { rounds: 10, rounds_of_others: 3, round_ms: 250., loads: 3 };
    /// Shows that everything works; its figures mean little.
    pub(super) const QUICK: Self = Self { rounds: 2, rounds_of_others: 1, round_ms: 30., loads: 1 };
}

/// What an engine did in a case.
pub(super) type Outcome = std::result::Result<Figures, String>;

/// What was measured of one engine in one case.
#[derive(Debug, Clone, Default)]
pub(super) struct Figures {
    /// Least and middle time of each round, in ms.
    least: Vec<f64>,
    middle: Vec<f64>,
    /// Largest difference from ONNX Runtime's outputs, over their largest magnitude.
    error: Option<f64>,
}

/// What loading a model took.
#[derive(Debug, Clone)]
pub(super) struct Load {
    /// From the file to the ready session, each time.
    ms: Vec<f64>,
    /// Resident memory of the process before it loaded, and its peak after a first run.
    before_mb: f64,
    peak_mb: f64,
}

/// Measures the cases whose name contains `only`, and returns the table.
pub(super) fn run(run: &mut Run, only: &str, effort: &Effort) -> Result<String> {
    let folder = cmd::root().join("target/xtask/engine");
    std::fs::create_dir_all(&folder)?;
    let programs = programs()?;
    let cases: Vec<Case> = cases::all().filter(|case| case.name().contains(only)).collect();
    let nets: Vec<&'static Net> =
        NETS.iter().filter(|net| net.load_name().contains(only)).collect();
    ensure!(!cases.is_empty() || !nets.is_empty(), "no case has a name with '{only}' in it");
    models(&folder, &cases, &nets)?;
    let mut table = report::Table::default();
    for case in &cases {
        eprintln!("== {}", case.name());
        let outcomes = measure(case, &programs, &folder, effort)?;
        for (engine, outcome) in &outcomes {
            let name = format!("{}/{}", case.name(), engine.name());
            keep(run, &name, *engine, outcome);
        }
        table.case(case, &outcomes);
    }
    for net in nets {
        eprintln!("== {}", net.load_name());
        let mut loads = BTreeMap::new();
        for engine in Engine::ALL {
            let load = load(net, engine, &programs, &folder, effort).map_err(|e| format!("{e:#}"));
            if let Ok(Load { ms, before_mb, peak_mb }) = &load {
                let name = format!("{}/{}", net.load_name(), engine.name());
                let better = better(engine);
                run.value(&format!("{name}/ms"), "ms", better, ms.clone());
                run.value(&format!("{name}/peak"), "MB", better, vec![*peak_mb]);
                run.value(&format!("{name}/before"), "MB", Better::Neither, vec![*before_mb]);
            }
            loads.insert(engine, load);
        }
        table.load(net, &loads);
    }
    Ok(format!("{}\n{}", versions()?, table.render()))
}

/// A peer's figures say nothing about a change of ours.
fn better(engine: Engine) -> Better {
    if engine == Engine::Ours { Better::Lower } else { Better::Neither }
}

fn keep(run: &mut Run, name: &str, engine: Engine, outcome: &Outcome) {
    match outcome {
        Ok(Figures { least, middle, error }) => {
            run.value(&format!("{name}/min"), "ms", better(engine), least.clone());
            run.value(&format!("{name}/median"), "ms", better(engine), middle.clone());
            if let Some(error) = error {
                run.value(&format!("{name}/error"), "of 1", Better::Neither, vec![*error]);
            }
        }
        Err(message) => run.note(name, message),
    }
}

/// Who was compared, in a sentence.
fn versions() -> Result<String> {
    let manifest = std::fs::read_to_string(cmd::root().join("bench-peers/Cargo.toml"))?;
    let crates = manifest.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" = ")?;
        let version = rest.split_once("\"=")?.1.split('"').next()?;
        ["rten", "tract-onnx"].contains(&name).then(|| format!("{name} {version}"))
    });
    let modules = python::ENGINES.iter().map(|package| package.replace("==", " "));
    let all: Vec<String> = modules.chain(crates).collect();
    Ok(format!("Compared with {}.\n", all.join(", ")))
}

/// Builds the programs and sets up the Python environment.
fn programs() -> Result<Programs> {
    let root = cmd::root();
    let mut cargo = cmd::cargo();
    cargo.args(["build", "--release", "--quiet", "-p", "lgp-inference"]);
    cargo.args(["--example", "zoo", "--example", "engine_bench"]);
    cmd::run(&mut cargo)?;
    let mut cargo = cmd::cargo();
    cargo.args(["build", "--release", "--quiet", "--locked", "--target-dir"]);
    cargo.arg(root.join("target/bench-peers"));
    cmd::run(cargo.arg("--manifest-path").arg(root.join("bench-peers/Cargo.toml")))?;
    Ok(Programs {
        ours: root.join("target/release/examples/engine_bench"),
        rust: root.join("target/bench-peers/release/bench-peers"),
        python: python::engines()?,
        script: root.join("bench-peers/engines.py"),
    })
}

/// Writes the models that are needed, and the inputs for them.
fn models(folder: &Path, cases: &[Case], nets: &[&'static Net]) -> Result<()> {
    let loads: Vec<Case> = nets.iter().copied().map(Case::loading).collect();
    let needed = || cases.iter().chain(&loads);
    let names: BTreeSet<&str> = needed().map(|case| case.net.file).collect();
    let mut zoo = cmd::command(cmd::root().join("target/release/examples/zoo"));
    let written = cmd::stdout(zoo.arg(folder).args(&names))?;
    ensure!(written.ok, "the models could not be written");
    let inputs: BTreeMap<PathBuf, &Case> =
        needed().map(|case| (case.prefix(folder), case)).collect();
    inputs.values().try_for_each(|case| case.write_inputs(folder))
}

/// All engines of a case, in turns.
fn measure(
    case: &Case,
    programs: &Programs,
    folder: &Path,
    effort: &Effort,
) -> Result<Vec<(Engine, Outcome)>> {
    let mut running: Vec<(Engine, std::result::Result<Turn, String>)> = Vec::new();
    for engine in case.engines() {
        let turn = begin(case, engine, programs, folder, effort).map_err(|e| format!("{e:#}"));
        running.push((engine, turn));
    }
    for round in 0..effort.rounds {
        for (engine, turn) in &mut running {
            let wanted = match engine {
                Engine::Rten | Engine::Tract => effort.rounds_of_others,
                _ => effort.rounds,
            };
            let Ok(Turn { peer, timed, figures, .. }) = turn else { continue };
            if round >= wanted || *timed == 0 {
                continue;
            }
            // The first run after a long stop also pays for memory that the system took meanwhile.
            match peer.awake(|peer| peer.run(1, *timed)) {
                Ok(mut times) => {
                    times.sort_by(f64::total_cmp);
                    figures.least.push(times[0]);
                    figures.middle.push(times[times.len() / 2]);
                }
                Err(error) => *turn = Err(format!("{error:#}")),
            }
        }
    }
    let reference = running.iter().find(|(engine, _)| *engine == Engine::OnnxRuntime);
    let reference = reference.and_then(|(_, turn)| turn.as_ref().ok()).map(|turn| &turn.outputs);
    let reference = reference.map(|path| floats(path)).transpose()?;
    let finish = |(engine, turn): (Engine, std::result::Result<Turn, String>)| {
        let outcome = turn.and_then(|mut turn| {
            if let Some(reference) = &reference {
                let outputs = floats(&turn.outputs).map_err(|e| format!("{e:#}"))?;
                turn.figures.error = Some(difference(&outputs, reference)?);
            }
            Ok(turn.figures)
        });
        (engine, outcome)
    };
    // A bf16 case has ONNX Runtime along for its outputs alone.
    let shown = |(engine, _): &(Engine, Outcome)| *engine != Engine::OnnxRuntime || !case.fast;
    Ok(running.into_iter().map(finish).filter(shown).collect())
}

/// One engine's process in a case.
struct Turn {
    peer: Peer,
    /// Runs a round; 0 for one that only gave its outputs.
    timed: usize,
    figures: Figures,
    /// Where its outputs lie.
    outputs: PathBuf,
}

/// Starts an engine, finds out how many runs fill a round, saves its outputs, and stops it.
fn begin(
    case: &Case,
    engine: Engine,
    programs: &Programs,
    folder: &Path,
    effort: &Effort,
) -> Result<Turn> {
    let fast = case.fast && engine != Engine::OnnxRuntime;
    let mut peer = Peer::start(programs, engine, case, folder, fast)?;
    peer.loaded()?;
    let outputs = folder.join(format!("{}.out", engine.name()));
    peer.save(&outputs)?;
    let timed = if fast != case.fast {
        0
    } else {
        let times = peer.run(1, 1)?;
        // More than a thousand values a round would not make it better.
        (effort.round_ms / times[0]).clamp(1., 1000.) as usize
    };
    peer.sleep()?;
    let mut turn = Turn { peer, timed, figures: Figures::default(), outputs };
    if timed == 0 {
        turn.peer.end();
    }
    Ok(turn)
}

/// Loads a model in processes of their own.
fn load(
    net: &'static Net,
    engine: Engine,
    programs: &Programs,
    folder: &Path,
    effort: &Effort,
) -> Result<Load> {
    let mut load = Load { ms: Vec::new(), before_mb: f64::INFINITY, peak_mb: f64::INFINITY };
    for _ in 0..effort.loads {
        let mut peer = Peer::start(programs, engine, &Case::loading(net), folder, false)?;
        let (ms, before_mb) = peer.loaded()?;
        peer.run(0, 1)?;
        load.ms.push(ms);
        load.before_mb = load.before_mb.min(before_mb);
        load.peak_mb = load.peak_mb.min(peer.peak_mb()?);
    }
    Ok(load)
}

fn floats(path: &Path) -> Result<Vec<f32>> {
    let bytes = std::fs::read(path).with_context(|| format!("no outputs in {}", path.display()))?;
    Ok(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// The largest difference over the largest magnitude.
fn difference(outputs: &[f32], reference: &[f32]) -> std::result::Result<f64, String> {
    if outputs.len() != reference.len() {
        return Err(format!("{} output elements, expected {}", outputs.len(), reference.len()));
    }
    let largest = reference.iter().fold(f32::MIN_POSITIVE, |most, v| most.max(v.abs()));
    let mut worst = 0.;
    for (a, b) in outputs.iter().zip(reference) {
        let difference = f64::from((a - b).abs() / largest);
        // A value that is no number agrees with nothing.
        worst = if difference.is_nan() { f64::INFINITY } else { f64::max(worst, difference) };
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_relative_to_the_largest() {
        assert_eq!(difference(&[1., -4.], &[2., -4.]), Ok(0.25));
        assert_eq!(difference(&[f32::NAN, -4.], &[2., -4.]), Ok(f64::INFINITY));
        assert!(difference(&[1.], &[2., -4.]).is_err());
    }
}
