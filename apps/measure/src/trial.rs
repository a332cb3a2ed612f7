//! Generates small networks with a known amount of work, to measure and compare devices.

use crate::random::Random;
use lgp_compute::device::Accelerator;
use lgp_inference::{Attr, Error, GraphBuilder, Model, Session, SessionOptions, Value};
use lgp_memory::{DType, NamedTensor, Shape, Tensor, TensorType};

/// The size of the networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialSize {
    /// Milliseconds on a CPU: to check whether a device computes correctly.
    Small,
    /// Large enough to keep a GPU busy: to measure its speed.
    Full,
}

/// A network of one kind of work, with inputs. Weights and inputs are the same on every machine.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The kind and size of the work, such as `gemm-512`.
    pub name: String,
    /// Multiplications and additions of one run.
    pub operations: f64,
    /// The number of nodes that share the operations.
    pub(crate) nodes: usize,
    model: Model,
    pub(crate) inputs: Vec<NamedTensor>,
}

/// Makes the networks of a kind.
type Make = fn(TrialSize) -> Result<Vec<Trial>, Error>;

/// One line for each kind of work.
const MAKERS: [Make; 5] = [products, convolutions_3x3, convolutions_1x1, vectors, attention];

/// The kinds of work, which are the prefixes of the networks' names.
pub const TRIAL_KINDS: [&str; MAKERS.len()] = ["gemm", "conv3x3", "conv1x1", "gemv", "attention"];

/// The networks of a size and of some kinds.
///
/// # Errors
/// [`Error`] if a network cannot be built, which is a defect.
pub fn trials(size: TrialSize, kinds: &[&str]) -> Result<Vec<Trial>, Error> {
    let wanted = TRIAL_KINDS.iter().zip(MAKERS).filter(|(kind, _)| kinds.contains(kind));
    let all = wanted.map(|(_, make)| make(size)).collect::<Result<Vec<_>, _>>()?;
    Ok(all.into_iter().flatten().collect())
}

/// Few networks of the kinds of work that most models consist of, for a quick measurement.
pub(crate) fn typical(size: TrialSize) -> Result<Vec<Trial>, Error> {
    match size {
        TrialSize::Small => Ok(vec![gemm(96)?, conv3x3(8, 16)?, elementwise(64)?]),
        TrialSize::Full => Ok(vec![gemm(512)?, conv3x3(64, 56)?, elementwise(2048)?]),
    }
}

impl Trial {
    /// Opens a session of the network on a device, or on the CPU for `None`.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn session(
        &self,
        options: SessionOptions,
        accelerator: Option<Accelerator>,
    ) -> Result<Session, Error> {
        Session::on_devices(&self.model, options, accelerator.into_iter().collect())
    }

    /// Runs the network once, including the copies of inputs and outputs.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run(&self, session: &Session) -> Result<Vec<NamedTensor>, Error> {
        let inputs: Vec<_> =
            self.inputs.iter().map(|input| (input.name.as_str(), input.tensor.view())).collect();
        session.run(&inputs)
    }
}

/// The largest difference of outputs from those of a reference, as a share of the reference's largest magnitude;
/// `None` if shapes differ or a value is not finite.
#[must_use]
pub fn difference(outputs: &[NamedTensor], reference: &[NamedTensor]) -> Option<f64> {
    if outputs.len() != reference.len() {
        return None;
    }
    let mut worst = 0.0f64;
    for (output, expected) in outputs.iter().zip(reference) {
        if output.tensor.shape() != expected.tensor.shape() {
            return None;
        }
        let (given, right) =
            (output.tensor.as_slice::<f32>().ok()?, expected.tensor.as_slice::<f32>().ok()?);
        let largest = right.iter().fold(0.0f64, |most, value| most.max(f64::from(value.abs())));
        for (given, right) in given.iter().zip(right) {
            let off = (f64::from(*given) - f64::from(*right)).abs();
            if !off.is_finite() {
                return None;
            }
            worst = worst.max(if off == 0.0 { 0.0 } else { off / largest });
        }
    }
    Some(worst)
}

/// A graph under construction, and the random numbers of its tensors.
struct Draft {
    graph: GraphBuilder,
    inputs: Vec<NamedTensor>,
    random: Random,
}

impl Draft {
    fn new(name: &str) -> Self {
        Self { graph: GraphBuilder::new(name), inputs: Vec::new(), random: Random::default() }
    }

    /// Uniform numbers from −1 to 1, scaled by √(3 / `added`), where `added` is the number of summed products.
    /// Outputs then stay as large as inputs.
    fn tensor(&mut self, dims: &[usize], added: usize) -> Result<Tensor, Error> {
        let scale = (3.0 / added as f64).sqrt() as f32;
        let count = dims.iter().product();
        let value = || scale * (2.0 * self.random.uniform() - 1.0);
        let values: Vec<f32> = std::iter::repeat_with(value).take(count).collect();
        Tensor::from_slice(dims, &values).map_err(Error::from)
    }

    fn input(&mut self, name: &str, dims: &[usize]) -> Result<Value, Error> {
        let tensor = self.tensor(dims, 1)?;
        self.inputs.push(NamedTensor::new(name, tensor));
        Ok(self.graph.input(name, fixed(dims)))
    }

    fn weight(&mut self, name: String, dims: &[usize], added: usize) -> Result<Value, Error> {
        let tensor = self.tensor(dims, added)?;
        Ok(self.graph.initializer(name, tensor))
    }

    /// Finishes a network with the given numbers of operations and nodes.
    fn finish(
        mut self,
        output: Value,
        dims: &[usize],
        (operations, nodes): (usize, usize),
    ) -> Result<Trial, Error> {
        self.graph.output("y", output, fixed(dims));
        let model = self.graph.finish()?;
        let name = model.name().to_owned();
        Ok(Trial { name, operations: operations as f64, nodes, model, inputs: self.inputs })
    }
}

fn fixed(dims: &[usize]) -> TensorType {
    TensorType::concrete(DType::F32, &Shape::from(dims))
}

/// A `rows` × n matrix times several n × n matrices in turn, so that work outweighs the copies.
fn chain(name: &str, rows: usize, n: usize, count: usize) -> Result<Trial, Error> {
    let mut draft = Draft::new(name);
    let mut x = draft.input("x", &[rows, n])?;
    for at in 0..count {
        let w = draft.weight(format!("w{at}"), &[n, n], n)?;
        x = draft.graph.node("MatMul", &[x, w], []);
    }
    draft.finish(x, &[rows, n], (count * 2 * rows * n * n, count))
}

/// Products of matrices of n × n.
pub(crate) fn gemm(n: usize) -> Result<Trial, Error> {
    chain(&format!("gemm-{n}"), n, n, 4)
}

fn products(size: TrialSize) -> Result<Vec<Trial>, Error> {
    let sizes: &[usize] = match size {
        TrialSize::Small => &[96],
        TrialSize::Full => &[256, 512, 1024],
    };
    sizes.iter().map(|&n| gemm(n)).collect()
}

fn vectors(size: TrialSize) -> Result<Vec<Trial>, Error> {
    let n = if size == TrialSize::Small { 128 } else { 2048 };
    Ok(vec![chain(&format!("gemv-{n}"), 1, n, 4)?])
}

/// Element-wise operators on n × n numbers, of which only the means of rows leave the device.
fn elementwise(n: usize) -> Result<Trial, Error> {
    let mut draft = Draft::new(&format!("elementwise-{n}"));
    let x = draft.input("x", &[1, n])?;
    let w = draft.weight("w".to_owned(), &[n, n], 1)?;
    let mut y = draft.graph.node("Mul", &[w, x], []);
    for op in ["Sigmoid", "Tanh"] {
        y = draft.graph.node(op, &[y], []);
        y = draft.graph.node("Add", &[y, w], []);
    }
    let y = draft.graph.node("ReduceMean", &[y], [("axes", Attr::from([1]))]);
    draft.finish(y, &[n, 1], (6 * n * n, 6))
}

/// A chain of convolutions with activations, with the given numbers of channels.
fn convolutions(
    name: &str,
    side: usize,
    kernel: usize,
    channels: &[usize],
) -> Result<Trial, Error> {
    let mut draft = Draft::new(name);
    let first = channels.first().copied().unwrap_or(1);
    let (mut x, mut last, mut operations) = (draft.input("x", &[1, first, side, side])?, first, 0);
    let pad = i64::from(kernel == 3);
    for (at, &next) in channels.iter().enumerate().skip(1) {
        let added = last * kernel * kernel;
        let w = draft.weight(format!("w{at}"), &[next, last, kernel, kernel], added)?;
        x = draft.graph.node("Conv", &[x, w], [("pads", Attr::from([pad, pad, pad, pad]))]);
        x = draft.graph.node("Relu", &[x], []);
        operations += 2 * next * added * side * side;
        last = next;
    }
    draft.finish(x, &[1, last, side, side], (operations, channels.len().saturating_sub(1)))
}

/// Convolutions of 3 × 3 over an image of `side`² with a constant number of channels.
pub(crate) fn conv3x3(channels: usize, side: usize) -> Result<Trial, Error> {
    convolutions(&format!("conv3x3-{channels}x{side}"), side, 3, &[channels; 4])
}

fn convolutions_3x3(size: TrialSize) -> Result<Vec<Trial>, Error> {
    let (channels, side) = if size == TrialSize::Small { (8, 16) } else { (64, 56) };
    Ok(vec![conv3x3(channels, side)?])
}

fn convolutions_1x1(size: TrialSize) -> Result<Vec<Trial>, Error> {
    let (name, side, c) = match size {
        TrialSize::Small => ("conv1x1-8x16", 16, 8),
        TrialSize::Full => ("conv1x1-64x56", 56, 64),
    };
    Ok(vec![convolutions(name, side, 1, &[c, 4 * c, c, 4 * c, c])?])
}

/// Attention of several heads: softmax(q · kᵀ) · v.
fn attention(size: TrialSize) -> Result<Vec<Trial>, Error> {
    let (heads, tokens, depth) = if size == TrialSize::Small { (2, 32, 16) } else { (8, 256, 64) };
    let mut draft = Draft::new(&format!("attention-{heads}x{tokens}x{depth}"));
    let dims = [1, heads, tokens, depth];
    let (q, v) = (draft.input("q", &dims)?, draft.input("v", &dims)?);
    let k = draft.input("k", &[1, heads, depth, tokens])?;
    let scores = draft.graph.node("MatMul", &[q, k], []);
    let scale = Tensor::from_slice([1], &[(depth as f32).sqrt().recip()])?;
    let scale = draft.graph.initializer("scale", scale);
    let scores = draft.graph.node("Mul", &[scores, scale], []);
    let shares = draft.graph.node("Softmax", &[scores], [("axis", Attr::from(-1))]);
    let y = draft.graph.node("MatMul", &[shares, v], []);
    Ok(vec![draft.finish(y, &dims, (4 * heads * tokens * tokens * depth, 2))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_network_runs_and_gives_the_same_again() {
        let all = trials(TrialSize::Small, &TRIAL_KINDS).expect("they are built");
        let names: Vec<&str> = all.iter().map(|trial| trial.name.as_str()).collect();
        let expected = ["gemm-96", "conv3x3-8x16", "conv1x1-8x16", "gemv-128", "attention-2x32x16"];
        assert_eq!(names, expected);
        for (trial, kind) in all.iter().zip(TRIAL_KINDS) {
            assert!(trial.name.starts_with(kind), "{}", trial.name);
            let session = trial.session(SessionOptions::default(), None).expect("it loads");
            let outputs = trial.run(&session).expect("it runs");
            let values = outputs[0].tensor.as_slice::<f32>().expect("f32");
            let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            assert!((0.01..100.0).contains(&largest), "{}: {largest}", trial.name);
            assert_eq!(difference(&trial.run(&session).expect("again"), &outputs), Some(0.0));
            assert!(trial.operations > 0.0);
        }
    }

    #[test]
    fn what_is_wrong_is_seen() {
        let of = |values: &[f32]| {
            vec![NamedTensor::new("y", Tensor::from_slice([values.len()], values).expect("small"))]
        };
        assert_eq!(difference(&of(&[1.0, -4.0]), &of(&[2.0, -4.0])), Some(0.25));
        assert_eq!(difference(&of(&[f32::NAN, -4.0]), &of(&[2.0, -4.0])), None);
        assert_eq!(difference(&of(&[1.0]), &of(&[2.0, -4.0])), None);
        assert_eq!(difference(&[], &of(&[2.0])), None);
        assert_eq!(difference(&of(&[0.0]), &of(&[0.0])), Some(0.0));
    }
}
