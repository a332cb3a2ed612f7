//! The inputs on which a model is calibrated and judged, in two parts that share no row.

use crate::error::{Error, Result};
use lgp_inference::{Model, ValueSpec};
use lgp_memory::{DType, Dim, NamedTensor, Shape, Tensor};

/// The most rows of one run: enough for kernels to be busy, few enough to keep values small.
const ROWS_MAX: usize = 32;

/// The inputs of one run.
pub type RunInputs = Vec<NamedTensor>;

/// Some runs, and the right answer of each row where it is known.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// The inputs of each run.
    pub runs: Vec<RunInputs>,
    /// The class of each row of all runs, in order.
    pub labels: Option<Vec<usize>>,
}

/// Runs to calibrate on, and runs to judge by.
#[derive(Debug, Clone)]
pub struct Samples {
    /// The part from which ranges and correlations are taken.
    pub calibration: Part,
    /// The part on which errors and accuracy are measured.
    pub evaluation: Part,
    /// Whether both parts are the same runs, because there is only one.
    pub shared: bool,
}

impl Samples {
    /// Checks runs against a model's inputs and divides them. Where the first dimension of all
    /// inputs is one symbol, rows with even numbers calibrate and rows with odd numbers judge;
    /// otherwise runs do. `labels` has the class of each row, or of each run.
    ///
    /// # Errors
    /// [`Error::Samples`] for no runs, for a run that does not fit the model, for a number that is
    /// not finite, or for another number of labels than of rows.
    pub fn new(model: &Model, runs: Vec<RunInputs>, labels: Option<Vec<usize>>) -> Result<Self> {
        if runs.is_empty() {
            return Err(Error::samples("there are none, expected at least one"));
        }
        let specs = model.inputs();
        let runs: Vec<RunInputs> = runs
            .into_iter()
            .enumerate()
            .map(|(at, run)| {
                checked(specs, run).map_err(|why| Error::samples(format!("run {at}: {why}")))
            })
            .collect::<Result<_>>()?;
        let single = match has_rows(specs) {
            true => rows(&runs)?,
            false => runs,
        };
        if let Some(labels) = &labels
            && labels.len() != single.len()
        {
            let (given, expected) = (labels.len(), single.len());
            return Err(Error::samples(format!(
                "{given} labels for {expected} rows, expected one for each"
            )));
        }
        let part = |from: usize| -> Result<Part> {
            let every = |len: usize| (from..len).step_by(if single.len() == 1 { 1 } else { 2 });
            let picked = every(single.len()).map(|at| single[at].clone()).collect::<Vec<_>>();
            let runs = if has_rows(specs) { joined(picked)? } else { picked };
            let labels = labels.as_ref().map(|all| every(all.len()).map(|at| all[at]).collect());
            Ok(Part { runs, labels })
        };
        let shared = single.len() == 1;
        Ok(Self { calibration: part(0)?, evaluation: part(usize::from(!shared))?, shared })
    }

    /// Shapes of the inputs of the first run, for plans and costs.
    #[must_use]
    pub fn shapes(&self) -> Vec<(&str, Shape)> {
        let first = self.calibration.runs.first().into_iter().flatten();
        first.map(|input| (input.name.as_str(), input.tensor.shape().clone())).collect()
    }
}

/// The inputs in the model's order; or a sentence on the first that does not fit.
fn checked(specs: &[ValueSpec], mut run: RunInputs) -> Result<RunInputs, String> {
    let mut ordered = Vec::with_capacity(specs.len());
    for spec in specs {
        let Some(at) = run.iter().position(|input| input.name == spec.name) else {
            return Err(format!("input '{}' is missing", spec.name));
        };
        let input = run.swap_remove(at);
        let (given, wanted) = (input.tensor.dtype(), spec.ty.dtype);
        if wanted == DType::Str {
            return Err(format!("input '{}' takes strings, expected numbers", spec.name));
        }
        if given != wanted {
            return Err(format!("input '{}' is {given}, expected {wanted}", spec.name));
        }
        let dims = input.tensor.shape().dims();
        if let Some(shape) = &spec.ty.shape {
            let fits =
                |(dim, given): (&Dim, &usize)| dim.known().is_none_or(|known| known == *given);
            if shape.0.len() != dims.len() || !shape.0.iter().zip(dims).all(fits) {
                return Err(format!("input '{}' has shape {dims:?}, expected {shape}", spec.name));
            }
        }
        if let Ok(values) = input.tensor.as_slice::<f32>()
            && let Some(at) = values.iter().position(|value| !value.is_finite())
        {
            let value = values[at];
            return Err(format!("element {at} of input '{}' is {value}", spec.name));
        }
        ordered.push(input);
    }
    match run.first() {
        Some(other) => Err(format!("the model has no input '{}'", other.name)),
        None => Ok(ordered),
    }
}

/// Whether the first dimension of all inputs is one symbol.
fn has_rows(specs: &[ValueSpec]) -> bool {
    let first = |spec: &ValueSpec| spec.ty.shape.as_ref()?.0.first().cloned();
    let firsts: Vec<Option<Dim>> = specs.iter().map(first).collect();
    matches!(firsts.first(), Some(Some(Dim::Symbol(_)))) && firsts.windows(2).all(|w| w[0] == w[1])
}

/// Each row of each run as a run of its own.
fn rows(runs: &[RunInputs]) -> Result<Vec<RunInputs>> {
    let mut single = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let count = |input: &NamedTensor| input.tensor.shape().dims().first().copied().unwrap_or(0);
        let rows = run.first().map_or(0, count);
        if rows == 0 || run.iter().any(|input| count(input) != rows) {
            let given: Vec<usize> = run.iter().map(count).collect();
            let message = format!("run {at}: inputs have {given:?} rows, expected as many in each");
            return Err(Error::samples(message));
        }
        for row in 0..rows {
            single.push(run.iter().map(|input| one_row(input, row, rows)).collect::<Result<_>>()?);
        }
    }
    Ok(single)
}

fn one_row(input: &NamedTensor, row: usize, rows: usize) -> Result<NamedTensor> {
    let mut dims = input.tensor.shape().dims().to_vec();
    dims[0] = 1;
    let bytes = input.tensor.as_bytes();
    let each = bytes.len() / rows;
    let tensor = Tensor::from_bytes(input.tensor.dtype(), dims, &bytes[row * each..][..each])?;
    Ok(NamedTensor::new(input.name.clone(), tensor))
}

/// Rows of the same shapes that follow each other, joined to runs of up to [`ROWS_MAX`].
fn joined(rows: Vec<RunInputs>) -> Result<Vec<RunInputs>> {
    let alike = |a: &RunInputs, b: &RunInputs| {
        a.iter().zip(b).all(|(a, b)| a.tensor.shape() == b.tensor.shape())
    };
    let mut runs: Vec<RunInputs> = Vec::new();
    let mut rest = rows.as_slice();
    while let Some(first) = rest.first() {
        let alike = rest.iter().take(ROWS_MAX).take_while(|row| alike(first, row)).count();
        let (group, others) = rest.split_at(alike.max(1));
        rest = others;
        runs.push((0..first.len()).map(|input| together(group, input)).collect::<Result<_>>()?);
    }
    Ok(runs)
}

/// One input of some rows, as one tensor.
fn together(rows: &[RunInputs], input: usize) -> Result<NamedTensor> {
    let [first, others @ ..] = rows else { return Err(Error::samples("a run has no rows")) };
    if others.is_empty() {
        return Ok(first[input].clone());
    }
    let first = &first[input];
    let mut dims = first.tensor.shape().dims().to_vec();
    dims[0] = rows.len();
    let bytes: Vec<u8> =
        rows.iter().flat_map(|row| row[input].tensor.as_bytes()).copied().collect();
    let tensor = Tensor::from_bytes(first.tensor.dtype(), dims, &bytes)?;
    Ok(NamedTensor::new(first.name.clone(), tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_inference::GraphBuilder;
    use lgp_memory::{SymShape, TensorType};

    fn model(first: Dim) -> Model {
        let shape = Some(SymShape(vec![first, Dim::Known(2)]));
        let ty = TensorType { dtype: DType::F32, shape };
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty.clone());
        let y = g.node("Relu", &[x], []);
        g.output("y", y, ty);
        g.finish().unwrap()
    }

    fn run(rows: usize, first: f32) -> RunInputs {
        let values: Vec<f32> = (0..2 * rows).map(|i| first + i as f32).collect();
        vec![NamedTensor::new("x", Tensor::from_slice([rows, 2], &values).unwrap())]
    }

    #[test]
    fn even_rows_calibrate_and_odd_rows_judge() {
        let model = model(Dim::Symbol("n".into()));
        let labels = (0..73).collect();
        let samples = Samples::new(&model, vec![run(70, 0.), run(3, 1000.)], Some(labels)).unwrap();
        let rows = |part: &Part| part.runs.iter().map(|r| r[0].tensor.shape().dims()[0]).collect();
        let (even, odd): (Vec<usize>, Vec<usize>) =
            (rows(&samples.calibration), rows(&samples.evaluation));
        assert_eq!((even, odd), (vec![32, 5], vec![32, 4]));
        assert_eq!(samples.evaluation.labels.unwrap()[..3], [1, 3, 5]);
        let last = &samples.evaluation.runs[1][0].tensor;
        assert_eq!(last.as_slice::<f32>().unwrap()[6..], [1002., 1003.]);
        assert!(!samples.shared);
    }

    #[test]
    fn runs_of_fixed_shape_are_divided_whole() {
        let model = model(Dim::Known(3));
        let runs = vec![run(3, 0.), run(3, 10.), run(3, 20.)];
        let samples = Samples::new(&model, runs, None).unwrap();
        assert_eq!((samples.calibration.runs.len(), samples.evaluation.runs.len()), (2, 1));
        let one = Samples::new(&model, vec![run(3, 0.)], None).unwrap();
        assert!(one.shared && one.evaluation.runs == one.calibration.runs);
    }

    #[test]
    fn strings_are_refused() {
        let ty = TensorType { dtype: DType::Str, shape: None };
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty.clone());
        let y = g.node("Identity", &[x], []);
        g.output("y", y, ty);
        let text = Tensor::from_strings([1], &["a"]).unwrap();
        let runs = vec![vec![NamedTensor::new("x", text)]];
        let error = Samples::new(&g.finish().unwrap(), runs, None).unwrap_err().to_string();
        assert!(error.contains("input 'x' takes strings, expected numbers"), "{error}");
    }

    #[test]
    fn bad_samples_are_named() {
        let mut nan = run(1, 0.);
        nan[0].tensor = Tensor::from_slice([1, 2], &[0., f32::NAN]).unwrap();
        let mut other = run(1, 0.);
        other[0].name = "z".into();
        let mut more = run(1, 0.);
        more.push(NamedTensor::new("z", Tensor::scalar(0f32).unwrap()));
        let wide = vec![NamedTensor::new("x", Tensor::zeros(DType::F32, [1, 3]).unwrap())];
        let ints = vec![NamedTensor::new("x", Tensor::zeros(DType::I64, [1, 2]).unwrap())];
        let none = vec![NamedTensor::new("x", Tensor::zeros(DType::F32, [0, 2]).unwrap())];
        let cases = [
            (vec![], None, "there are none"),
            (vec![run(2, 0.), nan], None, "run 1: element 1 of input 'x' is NaN"),
            (vec![other], None, "run 0: input 'x' is missing"),
            (vec![more], None, "run 0: the model has no input 'z'"),
            (vec![wide], None, "input 'x' has shape [1, 3], expected"),
            (vec![ints], None, "input 'x' is i64, expected f32"),
            (vec![none], None, "inputs have [0] rows"),
            (vec![run(2, 0.)], Some(vec![1]), "1 labels for 2 rows"),
        ];
        let model = model(Dim::Symbol("n".into()));
        for (runs, labels, wanted) in cases {
            let error = Samples::new(&model, runs, labels).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error:?} lacks {wanted:?}");
        }
    }
}
