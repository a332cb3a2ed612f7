//! Runs a model on samples and shows values inside it, in as many passes as their memory needs.

use super::samples::{Part, RunInputs};
use crate::error::{Error, Result};
use lgp_inference::{Model, RunOptions, Session, SessionOptions, Stop, Structure, ValueSpec};
use lgp_memory::{NamedTensor, Tensor, TensorType};
use std::collections::{BTreeSet, HashMap};

/// The values that one pass holds take at most the bytes of the weights divided by this.
const WEIGHTS_BY: usize = 2;
/// A pass may always hold this much.
const BYTES_MIN: usize = 32 << 20;

/// How the work of compression is done on this machine's CPU.
#[derive(Debug, Clone)]
pub struct Work {
    /// Threads that a run may use.
    pub threads: usize,
    /// Ends the work early.
    pub stop: Stop,
}

impl Work {
    /// Fails where the work was asked to end.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub(crate) fn check(&self) -> Result<()> {
        self.stop.check().map_err(|_| Error::Stopped)
    }

    pub(crate) fn session(&self, model: &Model) -> Result<Session> {
        Ok(Session::new(model, SessionOptions::with_threads(self.threads))?)
    }

    /// The outputs of one run.
    ///
    /// # Errors
    /// Those of the run; [`Error::Stopped`].
    pub(crate) fn run(&self, session: &Session, inputs: &RunInputs) -> Result<Vec<NamedTensor>> {
        self.check()?;
        let views: Vec<_> = inputs.iter().map(|it| (it.name.as_str(), it.tensor.view())).collect();
        let outputs = session.run_with(&views, RunOptions::new().until(&self.stop));
        outputs.map_err(|error| match error {
            lgp_inference::Error::Stopped(_) => Error::Stopped,
            other => other.into(),
        })
    }
}

/// Runs the model on a part of the samples, and shows each value of `names` after each run.
///
/// # Errors
/// Those of the runs and of `each`; [`Error::Stopped`].
pub(crate) fn observe(
    (model, structure): (&Model, &Structure),
    names: &BTreeSet<String>,
    part: &Part,
    work: &Work,
    each: &mut dyn FnMut(&str, &Tensor) -> Result<()>,
) -> Result<()> {
    let stored: usize = model.initializers().values().map(|tensor| tensor.as_bytes().len()).sum();
    let limit = BYTES_MIN.max(stored / WEIGHTS_BY);
    let given: BTreeSet<&str> = model.inputs().iter().map(|spec| spec.name.as_str()).collect();
    for run in &part.runs {
        for input in run.iter().filter(|input| names.contains(&input.name)) {
            each(&input.name, &input.tensor)?;
        }
    }
    let inside: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !given.contains(name)).collect();
    for group in groups(&inside, structure, limit) {
        let session = work.session(&ending_at(model, structure, &group)?)?;
        for run in &part.runs {
            for output in work.run(&session, run)? {
                each(&output.name, &output.tensor)?;
            }
        }
    }
    Ok(())
}

/// The names in groups whose values take up to `limit` bytes together, or one value alone.
fn groups<'a>(names: &[&'a str], structure: &Structure, limit: usize) -> Vec<Vec<&'a str>> {
    let bytes: HashMap<&str, usize> = structure
        .values
        .iter()
        .filter_map(|value| {
            let ty = &value.info.as_ref()?.ty;
            let elements = ty.concrete_shape()?.elements().ok()?;
            Some((value.name.as_str(), elements * ty.dtype.size()))
        })
        .collect();
    let mut groups: Vec<Vec<&str>> = Vec::new();
    let mut held = limit;
    for name in names {
        let own = bytes.get(name).copied().unwrap_or(limit);
        if held.saturating_add(own) > limit || groups.is_empty() {
            groups.push(Vec::new());
            held = 0;
        }
        held = held.saturating_add(own);
        if let Some(group) = groups.last_mut() {
            group.push(name);
        }
    }
    groups
}

/// The model with these values as its outputs, without the nodes that they do not need.
fn ending_at(model: &Model, structure: &Structure, names: &[&str]) -> Result<Model> {
    let mut parts = model.clone().into_parts();
    let dtype = |name: &str| {
        let value = structure.values.iter().find(|value| value.name == name)?;
        Some(value.info.as_ref()?.ty.dtype)
    };
    parts.outputs = names
        .iter()
        .map(|name| {
            let dtype = dtype(name).unwrap_or(lgp_memory::DType::F32);
            ValueSpec::tensor(*name, TensorType { dtype, shape: None })
        })
        .collect();
    Ok(parts.finish()?)
}

#[cfg(test)]
pub(crate) fn work() -> Work {
    Work { threads: 1, stop: Stop::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::samples::Samples;
    use lgp_inference::GraphBuilder;
    use lgp_memory::{DType, Dim, SymShape};

    #[test]
    fn values_inside_are_shown_after_each_run() {
        let shape = Some(SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2)]));
        let ty = TensorType { dtype: DType::F32, shape };
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty.clone());
        let a = g.node("Neg", &[x], []);
        let b = g.node("Abs", &[a], []);
        g.output("y", b, ty);
        let model = g.finish().unwrap();
        let inner = model.nodes()[0].outputs[0].clone();
        let x = NamedTensor::new("x", Tensor::from_slice([2, 2], &[1f32, -2., 3., 4.]).unwrap());
        let samples = Samples::new(&model, vec![vec![x]], None).unwrap();
        let structure = model.structure(&samples.shapes()).unwrap();
        let names = [inner.clone(), "x".to_owned()].into();
        let mut seen = Vec::new();
        observe((&model, &structure), &names, &samples.calibration, &work(), &mut |name, value| {
            seen.push((name.to_owned(), value.as_slice::<f32>()?.to_vec()));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [("x".to_owned(), vec![1., -2.]), (inner, vec![-1., 2.])]);
    }

    #[test]
    fn what_takes_too_much_is_shown_in_several_passes() {
        let mut structure = Structure {
            values: Vec::new(),
            operators: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        for name in ["a", "b", "c"] {
            let ty = TensorType::concrete(DType::F32, &[10usize].into());
            let info = Some(lgp_compute::ValueInfo::of(ty));
            structure.values.push(lgp_inference::StructureValue { name: name.into(), info });
        }
        let grouped = groups(&["a", "b", "c"], &structure, 80);
        assert_eq!(grouped, [vec!["a", "b"], vec!["c"]]);
        assert_eq!(groups(&["a", "b"], &structure, 8), [vec!["a"], vec!["b"]]);
    }

    #[test]
    fn a_stop_ends_the_work() {
        let work = work();
        work.stop.stop();
        assert!(matches!(work.check(), Err(Error::Stopped)));
    }
}
