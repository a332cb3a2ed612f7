//! Warm-up runs of a model, before it answers requests.

use lgp_distributed::ZeroInput;
use lgp_inference::ValueSpec;
use lgp_memory::{Dim, ValueKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run with zeros as inputs, so that no client waits for the preparations of a first run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WarmUp {
    /// Shapes of inputs by name. Other inputs have the shape that the model declares, with 1 for each open
    /// dimension.
    pub shapes: BTreeMap<String, Vec<u64>>,
}

/// The most warm-up runs of a model.
pub(super) const RUNS_MAX: usize = 16;
/// The most bytes of all runs' names and shapes, which a worker gets in one message.
const DESCRIBED_BYTES_MAX: usize = 32 << 10;
/// The most bytes of an input in that message besides its name, and of each dimension.
const INPUT_BYTES: usize = 16;
const DIM_BYTES: usize = 10;

/// The inputs of each run of a model with `specs`; or the first invalid run, and why it is invalid.
pub(super) fn inputs(
    runs: &[WarmUp],
    specs: &[ValueSpec],
) -> Result<Vec<Vec<ZeroInput>>, (usize, String)> {
    if runs.len() > RUNS_MAX {
        let reason = format!("{} runs, at most {RUNS_MAX} are accepted", runs.len());
        return Err((RUNS_MAX + 1, reason));
    }
    let (mut all, mut bytes) = (Vec::with_capacity(runs.len()), 0usize);
    for (number, run) in (1..).zip(runs) {
        let inputs = run.inputs(specs).map_err(|reason| (number, reason))?;
        let described =
            |input: &ZeroInput| INPUT_BYTES + input.name.len() + input.shape.len() * DIM_BYTES;
        bytes += inputs.iter().map(described).sum::<usize>();
        if bytes > DESCRIBED_BYTES_MAX {
            let what = format!("names and shapes of all runs take {bytes} bytes");
            return Err((number, format!("{what}, at most {DESCRIBED_BYTES_MAX} are accepted")));
        }
        all.push(inputs);
    }
    Ok(all)
}

impl WarmUp {
    fn inputs(&self, specs: &[ValueSpec]) -> Result<Vec<ZeroInput>, String> {
        for name in self.shapes.keys() {
            if !specs.iter().any(|spec| spec.name == *name) {
                let known: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
                let known = known.join(", ");
                return Err(format!("the model has no input {name:?}, expected one of {known}"));
            }
        }
        let mut inputs = Vec::with_capacity(specs.len());
        for spec in specs {
            let (name, given) = (&spec.name, self.shapes.get(&spec.name));
            let is_optional = spec.kind == ValueKind::Optional;
            match (spec.kind, given) {
                (ValueKind::Tensor | ValueKind::Optional, _) => {}
                _ => return Err(format!("input {name:?} is no tensor, which has no zeros")),
            }
            let shape = match (given, &spec.ty.shape) {
                // An optional input is left out.
                (None, _) if is_optional => continue,
                (None, None) => {
                    return Err(format!("input {name:?} may have any rank: its shape is needed"));
                }
                (None, Some(declared)) => declared.0.iter().map(length).collect(),
                (Some(given), None) => given.clone(),
                (Some(given), Some(declared)) => fitting(name, given, &declared.0)?,
            };
            inputs.push(ZeroInput { name: name.clone(), dtype: spec.ty.dtype, shape });
        }
        Ok(inputs)
    }
}

/// A declared length; 1 for an open one.
fn length(dim: &Dim) -> u64 {
    dim.known().map_or(1, |known| u64::try_from(known).unwrap_or(u64::MAX))
}

/// The shape, if it fits the declared one.
fn fitting(name: &str, given: &[u64], declared: &[Dim]) -> Result<Vec<u64>, String> {
    let is_like = |(length, dim): (&u64, &Dim)| {
        dim.known().is_none_or(|known| u64::try_from(known).is_ok_and(|known| known == *length))
    };
    if given.len() == declared.len() && given.iter().zip(declared).all(is_like) {
        return Ok(given.to_vec());
    }
    let declared: Vec<String> = declared.iter().map(ToString::to_string).collect();
    let declared = declared.join(", ");
    Err(format!("input {name:?} has shape {given:?}, expected [{declared}]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_memory::{DType, SymShape, TensorType};

    fn spec(name: &str, dims: Option<Vec<Dim>>) -> ValueSpec {
        ValueSpec::tensor(name, TensorType { dtype: DType::F32, shape: dims.map(SymShape) })
    }

    fn run(shapes: &[(&str, &[u64])]) -> WarmUp {
        let shapes = shapes.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec()));
        WarmUp { shapes: shapes.collect() }
    }

    #[test]
    fn shapes_are_those_of_the_run_or_of_the_model() {
        let open = Dim::Symbol("n".into());
        let specs = [
            spec("x", Some(vec![open.clone(), Dim::Known(3)])),
            spec("y", Some(vec![Dim::Known(2), open])),
        ];
        let made = inputs(&[run(&[]), run(&[("x", &[8, 3])])], &specs).expect("they fit");
        let shapes = |run: &[ZeroInput]| run.iter().map(|i| i.shape.clone()).collect::<Vec<_>>();
        assert_eq!(shapes(&made[0]), [[1, 3], [2, 1]]);
        assert_eq!(shapes(&made[1]), [[8, 3], [2, 1]]);
        for (wrong, part) in [
            (run(&[("z", &[1])]), "no input \"z\", expected one of x, y"),
            (run(&[("x", &[1])]), "\"x\" has shape [1], expected [n, 3]"),
            (run(&[("x", &[1, 4])]), "\"x\" has shape [1, 4], expected [n, 3]"),
        ] {
            let (number, reason) = inputs(&[run(&[]), wrong], &specs).expect_err(part);
            assert_eq!(number, 2);
            assert!(reason.contains(part), "{reason}");
        }
        let any = [spec("x", None)];
        assert!(inputs(&[run(&[])], &any).is_err() && inputs(&[run(&[("x", &[2])])], &any).is_ok());
        assert!(inputs(&vec![run(&[]); 17], &specs).is_err());
        let long = [spec(&"x".repeat(20_000), Some(Vec::new()))];
        assert!(inputs(&[run(&[])], &long).is_ok() && inputs(&vec![run(&[]); 2], &long).is_err());
    }
}
