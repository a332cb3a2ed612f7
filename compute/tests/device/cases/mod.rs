//! Operators with inputs, to be computed on a device and on the CPU.

mod attention;
mod convolution;
mod elementwise;
mod movement;
mod norms;
mod products;

use lgp_compute::device::{Accelerator, Operand, Pointwise, Recipe};
use lgp_compute::ops::{Binary, BinaryKind, Unary, UnaryKind};
use lgp_compute::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorType};

/// One operator with inputs.
pub(crate) struct Case {
    /// What is printed of it.
    pub(crate) name: String,
    op: Box<dyn Op>,
    inputs: Vec<Option<Tensor>>,
    /// Inputs that the graph knows.
    constants: Vec<usize>,
    /// The largest difference, relative to the larger of 1 and the value.
    tolerance: f32,
    /// Whether a sum and a ReLU follow, computed where the operator's result is stored.
    finished: bool,
}

impl Case {
    fn new(name: impl Into<String>, op: impl Op, inputs: Vec<Tensor>) -> Self {
        let inputs = inputs.into_iter().map(Some).collect();
        let (name, op) = (name.into(), Box::new(op));
        Self { name, op, inputs, constants: vec![], tolerance: 1e-5, finished: false }
    }

    fn absent(mut self, input: usize) -> Self {
        self.inputs[input] = None;
        self
    }

    fn constant(mut self, inputs: &[usize]) -> Self {
        self.constants.extend(inputs);
        self
    }

    fn within(mut self, tolerance: f32) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// The same operator, followed by others in its last kernel.
    fn finished(mut self) -> Self {
        self.name += ", finished";
        self.finished = true;
        self
    }

    /// Whether the elements are few enough for an emulator.
    #[allow(dead_code, reason = "one of the two programs that share this asks")]
    pub(crate) fn is_small(&self) -> bool {
        self.inputs.iter().flatten().map(Tensor::len).sum::<usize>() <= 4096
    }

    /// Computes it in both places and compares.
    ///
    /// # Errors
    /// What differs, or why one of them refuses.
    pub(crate) fn check(&self, accelerator: &Accelerator) -> Result<(), String> {
        let shown = |error: lgp_compute::Error| error.to_string();
        let info = |(i, x): (usize, &Option<Tensor>)| {
            let x = x.as_ref()?;
            let constant = self.constants.contains(&i).then(|| x.clone());
            let ty = TensorType::concrete(x.dtype(), x.shape());
            Some(ValueInfo { constant, ..ValueInfo::of(ty) })
        };
        let infos: Vec<Option<ValueInfo>> = self.inputs.iter().enumerate().map(info).collect();
        let infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
        let outputs = self.op.infer(&infos).map_err(shown)?;
        let views: Vec<_> = self.inputs.iter().map(|x| x.as_ref().map(Tensor::view)).collect();
        let mut want = self.op.run(&Context::new(1), &views).map_err(shown)?;
        let mut recipe =
            Recipe::new(&*self.op, &infos, &outputs).ok_or("it has no kernels for these inputs")?;
        let mut given = self.inputs.clone();
        if self.finished {
            let bias =
                cast(&noise(&want[0].shape()[want[0].shape().rank() - 1..], 8), want[0].dtype());
            recipe = finish(recipe, &outputs[0], &bias).ok_or("it cannot be finished")?;
            want = vec![sum_and_relu(&want[0], &bias).map_err(shown)?];
            given.push(Some(bias));
        }
        let prepared = accelerator.prepare(recipe).map_err(shown)?;
        let upload = |x: &Option<Tensor>| {
            x.as_ref().map(|x| accelerator.upload(&x.view())).transpose().map_err(shown)
        };
        let inputs = given.iter().map(upload).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<_> = inputs.iter().map(Option::as_ref).collect();
        let alloc = |x: &Tensor| accelerator.alloc(x.dtype(), x.shape().clone()).map_err(shown);
        let given = want.iter().map(alloc).collect::<Result<Vec<_>, _>>()?;
        let places: Vec<_> = given.iter().map(Some).collect();
        accelerator.launch(&prepared, &inputs, &places).map_err(shown)?;
        for (given, want) in given.iter().zip(&want) {
            let given = accelerator.download(given).map_err(shown)?;
            compare(&given, want, self.tolerance)?;
        }
        Ok(())
    }
}

/// The recipe, followed by a sum with the bias and a ReLU.
fn finish(recipe: Recipe, output: &ValueInfo, bias: &Tensor) -> Option<Recipe> {
    let dtype = output.ty.dtype;
    let bias = ValueInfo::of(TensorType::concrete(dtype, bias.shape()));
    let operands = [Some(Operand::Input(0)), Some(Operand::Input(1))];
    let steps = Pointwise::new(&[output, &bias], output)?
        .step(&Binary::new(BinaryKind::Add), &operands, dtype)?
        .step(&Unary::new(UnaryKind::Relu), &[Some(Operand::Step(0))], dtype)?;
    recipe.finished_by(&steps)
}

fn sum_and_relu(x: &Tensor, bias: &Tensor) -> lgp_compute::Result<Tensor> {
    let (add, relu) = (Binary::new(BinaryKind::Add), Unary::new(UnaryKind::Relu));
    let mut sum = add.run(&Context::new(1), &[Some(x.view()), Some(bias.view())])?;
    sum = relu.run(&Context::new(1), &[Some(sum[0].view())])?;
    Ok(sum.remove(0))
}

fn compare(given: &Tensor, want: &Tensor, tolerance: f32) -> Result<(), String> {
    let wide = |x: &Tensor| -> Option<Vec<f32>> {
        let cast = lgp_compute::ops::Cast { to: DType::F32 };
        let x = cast.run(&Context::new(1), &[Some(x.view())]).ok()?.pop()?;
        Some(x.as_slice::<f32>().ok()?.to_vec())
    };
    if !want.dtype().is_float() {
        return match given == want {
            true => Ok(()),
            false => Err(format!("{given:?} is not {want:?}")),
        };
    }
    let halves = matches!(want.dtype(), DType::F16 | DType::BF16);
    let tolerance = if halves { tolerance.max(1e-2) } else { tolerance };
    let (a, b) = (wide(given).ok_or("no floats")?, wide(want).ok_or("no floats")?);
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        let close = (a - b).abs() <= tolerance * b.abs().max(1.);
        if !(close || a == b || a.is_nan() && b.is_nan()) {
            return Err(format!("element {i} is {a}, expected {b}"));
        }
    }
    Ok(())
}

/// Numbers between -1 and 1 that look random, the same for the same seed.
pub(crate) fn noise(shape: &[usize], seed: u32) -> Tensor {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.
    };
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Tensor::from_slice(shape, &data).expect("the shape fits")
}

/// The same numbers in another dtype.
pub(crate) fn cast(x: &Tensor, to: DType) -> Tensor {
    let cast = lgp_compute::ops::Cast { to };
    let outputs = cast.run(&Context::new(1), &[Some(x.view())]);
    outputs.expect("every dtype has it").pop().expect("one output")
}

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let cases = [
        attention::cases(),
        convolution::cases(),
        elementwise::cases(),
        movement::cases(),
        norms::cases(),
        products::cases(),
    ];
    cases.into_iter().flatten().collect()
}
