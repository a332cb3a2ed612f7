//! Cases of operators with inputs, which are computed on a device and on the CPU.

mod attention;
mod convolution;
mod elementwise;
mod indices;
mod movement;
mod norms;
mod pooling;
mod products;
mod quantized;
mod recurrent;

use lgp_compute::device::{Accelerator, Fused, Operand, Recipe, Step};
use lgp_compute::ops::{Binary, BinaryKind, Unary, UnaryKind};
use lgp_compute::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorType};
use std::sync::Arc;

/// The inputs of an operator; `None` for an optional input that is absent.
type Inputs = Vec<Option<Tensor>>;

/// One operator with inputs.
pub(crate) struct Case {
    /// The name that is printed.
    pub(crate) name: String,
    op: Arc<dyn Op>,
    inputs: Inputs,
    /// Inputs that are constants of the graph.
    constants: Vec<usize>,
    /// The largest difference, relative to the larger of 1 and the value.
    tolerance: f32,
    /// Whether a sum and a ReLU follow, which the operator's last kernel computes.
    finished: bool,
    /// Whether a test computes it in every way that a device may choose.
    #[allow(dead_code, reason = "one of the programs that share this asks")]
    pub(crate) in_every_way: bool,
}

impl Case {
    fn new(name: impl Into<String>, op: impl Op, inputs: Vec<Tensor>) -> Self {
        let inputs = inputs.into_iter().map(Some).collect();
        let (name, op) = (name.into(), Arc::new(op));
        let (constants, tolerance) = (vec![], 1e-5);
        Self { name, op, inputs, constants, tolerance, finished: false, in_every_way: false }
    }

    fn absent(mut self, input: usize) -> Self {
        self.inputs[input] = None;
        self
    }

    fn constant(mut self, inputs: &[usize]) -> Self {
        self.constants.extend(inputs);
        self
    }

    fn in_every_way(mut self) -> Self {
        self.in_every_way = true;
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
    #[allow(dead_code, reason = "one of the programs that share this asks")]
    pub(crate) fn is_small(&self) -> bool {
        self.inputs.iter().flatten().map(Tensor::len).sum::<usize>() <= 1024
    }

    /// The infos of inputs.
    fn infos(&self, inputs: &[Option<Tensor>]) -> Vec<Option<ValueInfo>> {
        let info = |(i, x): (usize, &Option<Tensor>)| {
            let x = x.as_ref()?;
            let constant = self.constants.contains(&i).then(|| x.clone());
            let ty = TensorType::concrete(x.dtype(), x.shape());
            Some(ValueInfo { constant, ..ValueInfo::of(ty) })
        };
        inputs.iter().enumerate().map(info).collect()
    }

    /// The operator with all inputs, joined with the sum and the ReLU where these follow.
    fn whole(&self) -> Result<(Arc<dyn Op>, Inputs), String> {
        let (op, mut inputs) = (Arc::clone(&self.op), self.inputs.clone());
        if !self.finished {
            return Ok((op, inputs));
        }
        let infos = self.infos(&inputs);
        let infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
        let output = op.infer(&infos).map_err(|error| error.to_string())?.swap_remove(0);
        let last = output.ty.concrete_shape().and_then(|shape| shape.last().copied());
        let bias = noise(&[last.ok_or("its shape is not known")?], 8);
        let op = Arc::new(finish(op, inputs.len()));
        inputs.push(Some(cast(&bias, output.ty.dtype)));
        Ok((op, inputs))
    }

    fn recipes_of(&self, op: &dyn Op, inputs: &[Option<Tensor>]) -> Result<Vec<Recipe>, String> {
        let infos = self.infos(inputs);
        let infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
        let outputs = op.infer(&infos).map_err(|error| error.to_string())?;
        let recipes = Recipe::alternatives(op, &infos, &outputs);
        if recipes.is_empty() {
            return Err("it has no kernels for these inputs".to_owned());
        }
        Ok(recipes)
    }

    /// The recipes that a device may launch for the operator, first the recipe for an operator
    /// without measurements.
    ///
    /// # Errors
    /// Why there is no recipe.
    #[allow(dead_code, reason = "one of the programs that share this asks")]
    pub(crate) fn recipes(&self) -> Result<Vec<Recipe>, String> {
        let (op, inputs) = self.whole()?;
        self.recipes_of(&*op, &inputs)
    }

    /// Computes the operator on the device and on the CPU and compares the outputs.
    ///
    /// # Errors
    /// The difference, or the error of either.
    pub(crate) fn check(&self, accelerator: &Accelerator) -> Result<(), String> {
        self.compare_with(accelerator, |recipes| accelerator.choose(recipes).into_iter().collect())
    }

    /// As [`Case::check`], for every recipe of kernels alone, which every device can launch.
    ///
    /// # Errors
    /// The difference of a recipe, or its error.
    #[allow(dead_code, reason = "one of the programs that share this asks")]
    pub(crate) fn check_all(&self, accelerator: &Accelerator) -> Result<(), String> {
        let kernels = |recipe: &Recipe| recipe.library().is_none();
        self.compare_with(accelerator, |recipes| recipes.into_iter().filter(kernels).collect())
    }

    fn compare_with(
        &self,
        accelerator: &Accelerator,
        choose: impl FnOnce(Vec<Recipe>) -> Vec<Recipe>,
    ) -> Result<(), String> {
        let shown = |error: lgp_compute::Error| error.to_string();
        let (op, inputs) = self.whole()?;
        let views: Vec<_> = inputs.iter().map(|x| x.as_ref().map(Tensor::view)).collect();
        let want = op.run(&Context::new(1), &views).map_err(shown)?;
        let recipes = choose(self.recipes_of(&*op, &inputs)?);
        if recipes.is_empty() {
            return Err("there is nothing to choose from".to_owned());
        }
        let upload = |x: &Option<Tensor>| {
            x.as_ref().map(|x| accelerator.upload(&x.view())).transpose().map_err(shown)
        };
        let inputs = inputs.iter().map(upload).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<_> = inputs.iter().map(Option::as_ref).collect();
        for (i, recipe) in recipes.into_iter().enumerate() {
            let prepared = accelerator.prepare(recipe).map_err(shown)?;
            let alloc = |x: &Tensor| accelerator.alloc(x.dtype(), x.shape().clone()).map_err(shown);
            let given = want.iter().map(alloc).collect::<Result<Vec<_>, _>>()?;
            let places: Vec<_> = given.iter().map(Some).collect();
            accelerator.launch(&prepared, &inputs, &places).map_err(shown)?;
            for (given, want) in given.iter().zip(&want) {
                let given = accelerator.download(given).map_err(shown)?;
                compare(&given, want, self.tolerance).map_err(|why| format!("way {i}: {why}"))?;
            }
        }
        Ok(())
    }
}

/// An operator of so many inputs, followed by a sum with a bias and a ReLU.
fn finish(op: Arc<dyn Op>, inputs: usize) -> Fused {
    let operands = vec![Some(Operand::Input(0)), Some(Operand::Input(1))];
    let add = Step { op: Arc::new(Binary::new(BinaryKind::Add)), operands };
    let relu = Arc::new(Unary::new(UnaryKind::Relu));
    let relu = Step { op: relu, operands: vec![Some(Operand::Step(0))] };
    Fused::new(Some((op, inputs)), vec![add, relu])
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

/// Pseudo-random numbers between -1 and 1, the same for the same seed.
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
        indices::cases(),
        movement::cases(),
        norms::cases(),
        pooling::cases(),
        products::cases(),
        quantized::cases(),
        recurrent::cases(),
    ];
    cases.into_iter().flatten().collect()
}
