//! Operators with inputs, to be computed on a device and on the CPU.

mod attention;
mod convolution;
mod elementwise;
mod movement;
mod norms;
mod products;

use lgp_compute::device::{Accelerator, Recipe};
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
}

impl Case {
    fn new(name: impl Into<String>, op: impl Op, inputs: Vec<Tensor>) -> Self {
        let inputs = inputs.into_iter().map(Some).collect();
        Self { name: name.into(), op: Box::new(op), inputs, constants: vec![], tolerance: 1e-5 }
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
        let want = self.op.run(&Context::new(1), &views).map_err(shown)?;
        let recipe = Recipe::new(&*self.op, accelerator.limits(), &infos, &outputs)
            .ok_or("it has no kernels for these inputs")?;
        let prepared = accelerator.prepare(recipe).map_err(shown)?;
        let upload = |x: &Option<Tensor>| {
            x.as_ref().map(|x| accelerator.upload(&x.view())).transpose().map_err(shown)
        };
        let inputs = self.inputs.iter().map(upload).collect::<Result<Vec<_>, _>>()?;
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
