//! One test: its model, its sets of inputs and expected outputs, its tolerance.

use crate::Test;
use crate::compare::{Tolerance, compare};
use lgp_inference::{Model, Session, SessionOptions, ValueSpec, check_facts, read_value};
use lgp_memory::{DType, Datum, Dim, Tensor, ValueKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Runs a test; `operators` receives the names of those in its model, as far as it can be read.
pub(crate) fn run(test: &Test, operators: &mut String) -> Result<(), String> {
    let model = Model::load(&test.model).map_err(|e| format!("load: {e}"))?;
    let names: BTreeSet<String> = model
        .nodes()
        .iter()
        .map(|node| format!("{}::{}", node.domain, node.op_type))
        // Constants are how tests write their inputs, so that they say nothing of the test.
        .filter(|name| name != "::Constant" || model.nodes().len() == 1)
        .collect();
    *operators = names.into_iter().collect::<Vec<_>>().join(" ");
    let session = Session::new(&model, SessionOptions::with_threads(1))
        .map_err(|e| format!("compile: {e}"))?;
    if test.suite == "light" {
        let prefix = test.model.with_extension("");
        let outputs = numbered(|i| PathBuf::from(format!("{}_output_{i}.pb", prefix.display())));
        let inputs =
            model.inputs().iter().map(|s| ramp(s).map(Into::into)).collect::<Result<_, _>>()?;
        return check(&model, &session, inputs, &outputs, Tolerance::DEFAULT);
    }
    let folder = test.model.parent().unwrap_or(Path::new("."));
    let tolerance = Tolerance::read(&folder.join("data.json"));
    let sets: Vec<PathBuf> = (0..)
        .map(|i| folder.join(format!("test_data_set_{i}")))
        .take_while(|set| set.is_dir())
        .collect();
    if sets.is_empty() {
        return Err("the test has no data".into());
    }
    for set in sets {
        let inputs = numbered(|i| set.join(format!("input_{i}.pb")));
        // A file more than the model has inputs is an error that `check` words.
        let kinds = model.inputs().iter().map(|spec| spec.kind);
        let kinds = kinds.chain(std::iter::repeat(ValueKind::Tensor));
        let inputs = inputs.iter().zip(kinds).map(|(path, kind)| read(path, kind));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let outputs = numbered(|i| set.join(format!("output_{i}.pb")));
        check(&model, &session, inputs, &outputs, tolerance)?;
    }
    Ok(())
}

/// The files that a numbered name stands for, up to the first that is not there.
fn numbered(name: impl Fn(usize) -> PathBuf) -> Vec<PathBuf> {
    (0..).map(name).take_while(|path| path.is_file()).collect()
}

fn read(path: &Path, kind: ValueKind) -> Result<Datum, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    read_value(&bytes, kind).map_err(|e| format!("{name}: {e}"))
}

fn check(
    model: &Model,
    session: &Session,
    inputs: Vec<Datum>,
    outputs: &[PathBuf],
    tolerance: Tolerance,
) -> Result<(), String> {
    if outputs.is_empty() {
        return Err("the test expects no output".into());
    }
    // Inputs with a default come last where the data leaves them out.
    let (given, takes) = (inputs.len(), model.inputs().len());
    if takes < given {
        return Err(format!("{given} inputs, but the model takes {takes}"));
    }
    let named: Vec<(&str, Datum)> =
        model.inputs().iter().map(|spec| spec.name.as_str()).zip(inputs).collect();
    let got = session.run_data(named.clone()).map_err(|e| format!("run: {e}"))?;
    if got.len() < outputs.len() {
        return Err(format!("{} outputs, expected {}", got.len(), outputs.len()));
    }
    // The file is what the model declares, which may be more exact than what is known of the value.
    for ((spec, (name, got)), path) in model.outputs().iter().zip(&got).zip(outputs) {
        let expected = read(path, spec.kind)?;
        compare_data(got, &expected, tolerance).map_err(|e| format!("output '{name}': {e}"))?;
    }
    let complaints = check_facts(model, named, 1).map_err(|e| format!("facts: {e}"))?;
    complaints.first().map_or(Ok(()), |first| Err(format!("facts: {first}")))
}

/// Compares values of any kind.
fn compare_data(got: &Datum, want: &Datum, tolerance: Tolerance) -> Result<(), String> {
    match (got, want) {
        (Datum::Tensor(got), Datum::Tensor(want)) => compare(got, want, tolerance),
        (Datum::Sequence(got), Datum::Sequence(want)) if got.len() == want.len() => {
            let mut pairs = got.iter().zip(want).enumerate();
            pairs.try_for_each(|(i, (got, want))| {
                compare_data(got, want, tolerance).map_err(|e| format!("element {i}: {e}"))
            })
        }
        (Datum::Sequence(got), Datum::Sequence(want)) => {
            Err(format!("{} elements, expected {}", got.len(), want.len()))
        }
        (got, want) if got == want => Ok(()),
        (got, want) => Err(format!("{}, expected {}", got.kind(), want.kind())),
    }
}

/// What the models of the suite `light` are given: the suite's own runner fills every input with
/// 0, 1/n, 2/n and so on; dimensions that are not fixed are 1.
fn ramp(spec: &ValueSpec) -> Result<Tensor, String> {
    let (DType::F32, Some(shape)) = (spec.ty.dtype, &spec.ty.shape) else {
        return Err(format!("input '{}' is {}, expected f32 of known rank", spec.name, spec.ty));
    };
    let dims: Vec<usize> = shape.0.iter().map(|d| Dim::known(d).unwrap_or(1)).collect();
    let n: usize = dims.iter().product();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "as f32 has it"
    )]
    let data: Vec<f32> = (0..n).map(|i| (i as f64 / n as f64) as f32).collect();
    Tensor::from_slice(dims, &data).map_err(|e| e.to_string())
}
