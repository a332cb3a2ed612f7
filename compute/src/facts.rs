//! Compares the facts that an operator states with the outputs that it computes.

use crate::args::infos;
use crate::axes::{Axis, AxisKind};
use crate::error::Result;
use crate::generator::Generator;
use crate::op::{Context, Given, Op, ValueInfo, launch};
use crate::ops::{Cast, Gather};
use lgp_memory::{DType, Tensor, TensorView};

/// Runs an operator on variations of its inputs and compares the outputs with [`Op::axes`],
/// [`Op::moves`] and [`Op::overwrites`]. The answer is a sentence for each contradiction. The same
/// seed makes the same variations. For tests of operators.
///
/// # Errors
/// The operator's error for the inputs as given.
///
/// ```
/// use lgp_compute::{check_facts, ops::Softmax};
/// use lgp_memory::Tensor;
///
/// let softmax = Softmax { axis: -1, log: false, flatten: false };
/// let x = Tensor::from_slice([2, 3], &[1f32, 2., 3., 4., 5., 6.])?;
/// assert!(check_facts(&softmax, &[Some(x)], 1)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check_facts(op: &dyn Op, inputs: &[Option<Tensor>], seed: u64) -> Result<Vec<String>> {
    let ctx = Context::new(1);
    let outputs = run(op, &ctx, inputs)?;
    let mut check = Check { op, ctx, inputs, outputs, rng: Generator::new(seed) };
    let mut complaints = Vec::new();
    check.axes(&mut complaints)?;
    check.moves(&mut complaints);
    check.overwrites(&mut complaints)?;
    let about = |text| format!("{op:?}: {text}");
    Ok(complaints.into_iter().map(about).collect())
}

fn run(op: &dyn Op, ctx: &Context, inputs: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
    launch(op, ctx, &views(inputs))
}

fn views(inputs: &[Option<Tensor>]) -> Vec<Option<TensorView<'_>>> {
    inputs.iter().map(|x| x.as_ref().map(Tensor::view)).collect()
}

struct Check<'a> {
    op: &'a dyn Op,
    ctx: Context,
    inputs: &'a [Option<Tensor>],
    outputs: Vec<Tensor>,
    rng: Generator,
}

impl Check<'_> {
    fn axes(&mut self, complaints: &mut Vec<String>) -> Result<()> {
        let infos = infos(&views(self.inputs))?;
        let given: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
        let outputs = self.op.infer(&given)?;
        for axis in self.op.axes(&given, &outputs).iter() {
            if let Err(complaint) = self.axis(axis) {
                complaints.push(format!("{axis:?}: {complaint}"));
            }
        }
        Ok(())
    }

    fn axis(&mut self, axis: &Axis) -> Result<(), String> {
        let Some(length) = self.length(axis)? else { return Ok(()) };
        match axis.kind {
            AxisKind::Each => {
                if axis.outputs.len() != self.outputs.len() {
                    return Err(format!("{} outputs, not all have it", self.outputs.len()));
                }
                let order = self.rng.shuffled(length);
                self.picks(axis, length, &order, "reordered")?;
                self.picks(axis, length, &(length / 2..length).collect::<Vec<_>>(), "cut")?;
                self.picks(axis, length, &(0..length.div_ceil(2)).collect::<Vec<_>>(), "cut")
            }
            AxisKind::All => {
                let order = self.rng.shuffled(length);
                self.picks(axis, length, &order, "reordered")
            }
            AxisKind::Window { stride, before, extent } => {
                self.window(axis, length, [stride, before, extent])
            }
            AxisKind::Picked { by } => self.picked(axis, by),
        }
    }

    /// The length of an axis in the outputs, or in the inputs where no output has the axis. `None`
    /// where the length leaves nothing to vary.
    fn length(&self, axis: &Axis) -> Result<Option<usize>, String> {
        let dim = |tensors: &[Option<&Tensor>], (i, axis): (usize, usize), what: &str| {
            let tensor = tensors.get(i).copied().flatten();
            let tensor = tensor.ok_or_else(|| format!("there is no {what} {i}"))?;
            let dim = tensor.shape().get(axis).copied();
            dim.ok_or_else(|| {
                format!("{what} {i} of shape {:?} has no axis {axis}", tensor.shape())
            })
        };
        let inputs: Vec<Option<&Tensor>> = self.inputs.iter().map(Option::as_ref).collect();
        let outputs: Vec<Option<&Tensor>> = self.outputs.iter().map(Some).collect();
        let read: Vec<usize> =
            axis.inputs.iter().map(|&at| dim(&inputs, at, "input")).collect::<Result<_, _>>()?;
        let made: Vec<usize> =
            axis.outputs.iter().map(|&at| dim(&outputs, at, "output")).collect::<Result<_, _>>()?;
        if !matches!(axis.kind, AxisKind::Each | AxisKind::All) {
            return Ok(read.first().copied().filter(|&n| n > 0));
        }
        let length = made.first().or(read.iter().max()).copied().unwrap_or(0);
        if made.iter().any(|&n| n != length) || read.iter().any(|&n| n != length && n != 1) {
            return Err(format!("inputs are {read:?} long, outputs {made:?}"));
        }
        Ok((length > 1).then_some(length))
    }

    /// Runs on picked positions of the inputs, and expects the same positions of the outputs.
    fn picks(&self, axis: &Axis, length: usize, at: &[usize], how: &str) -> Result<(), String> {
        let mut inputs = self.inputs.to_vec();
        for (i, input) in inputs.iter_mut().enumerate() {
            let Some(tensor) = input else { continue };
            for own in axis.inputs.iter().filter(|own| own.0 == i).map(|own| own.1) {
                if tensor.shape().get(own) == Some(&length) {
                    *tensor = self.pick(tensor, own, at)?;
                }
            }
        }
        let mut other = None;
        if at.len() != length {
            self.resize(axis, at.len(), &mut inputs);
            other = self.op.for_length(axis, at.len());
        }
        let outputs = run(other.as_deref().unwrap_or(self.op), &self.ctx, &inputs)
            .map_err(|e| format!("refuses inputs that are {how}: {e}"))?;
        for (o, (plain, varied)) in self.outputs.iter().zip(&outputs).enumerate() {
            let mut expected = plain.clone();
            for own in axis.outputs.iter().filter(|own| own.0 == o).map(|own| own.1) {
                expected = self.pick(&expected, own, at)?;
            }
            self.same(&expected, varied)
                .map_err(|e| format!("output {o} is not that of inputs that are {how}: {e}"))?;
        }
        Ok(())
    }

    /// Sets the axis's entry to the length in an input that holds the shape of output 0.
    fn resize(&self, axis: &Axis, length: usize, inputs: &mut [Option<Tensor>]) {
        let rank = self.outputs.first().map_or(0, |out| out.shape().rank());
        let shape = self.op.shape_input().and_then(|i| inputs.get_mut(i));
        let (Some(Some(tensor)), Some(own)) = (shape, axis.in_output(0)) else { return };
        let Ok(sizes) = tensor.as_mut_slice::<i64>() else { return };
        // A shape of lower rank holds the last axes. The entries 0 (the input's size) and -1 (the
        // rest) follow the inputs without a change.
        let own = (own + sizes.len()).checked_sub(rank);
        if let Some(size) = own.and_then(|own| sizes.get_mut(own)).filter(|size| **size > 1) {
            *size = i64::try_from(length).unwrap_or(i64::MAX);
        }
    }

    /// Changes one position of the input; only outputs whose window covers the position may change.
    fn window(&mut self, axis: &Axis, length: usize, window: [usize; 3]) -> Result<(), String> {
        let [stride, before, extent] = window;
        let at = self.rng.below(length);
        let reversed: Vec<usize> = (0..length).rev().collect();
        let mut inputs = self.inputs.to_vec();
        for &(i, own) in &axis.inputs {
            let Some(Some(tensor)) = inputs.get_mut(i) else { continue };
            let other = self.pick(tensor, own, &reversed)?;
            *tensor = self.spliced(tensor, &other, own, at)?;
        }
        let outputs = run(self.op, &self.ctx, &inputs).map_err(|e| e.to_string())?;
        for &(o, own) in &axis.outputs {
            let count = self.outputs[o].shape().dims()[own];
            let outside = |o: &usize| {
                let first = o * stride;
                at + before < first || at + before >= first + extent
            };
            let rest: Vec<usize> = (0..count).filter(outside).collect();
            let (plain, varied) =
                (self.pick(&self.outputs[o], own, &rest)?, self.pick(&outputs[o], own, &rest)?);
            self.same(&plain, &varied)
                .map_err(|e| format!("position {at} changes what it has no part in: {e}"))?;
        }
        Ok(())
    }

    /// A tensor whose position `at` comes from another tensor.
    fn spliced(
        &self,
        tensor: &Tensor,
        other: &Tensor,
        axis: usize,
        at: usize,
    ) -> Result<Tensor, String> {
        let length = tensor.shape().dims()[axis];
        let both = crate::ops::Concat { axis: i64::try_from(axis).unwrap_or(0) };
        let views = [Some(tensor.view()), Some(other.view())];
        let both = launch(&both, &self.ctx, &views).map_err(|e| e.to_string())?;
        let order: Vec<usize> = (0..length).map(|i| if i == at { length + i } else { i }).collect();
        self.pick(&both[0], axis, &order)
    }

    /// Reorders the input's axis and renumbers the indices into it; the outputs must stay the same.
    fn picked(&mut self, axis: &Axis, by: usize) -> Result<(), String> {
        let Some(&(data, own)) = axis.inputs.first() else { return Ok(()) };
        let mut inputs = self.inputs.to_vec();
        let (Some(Some(tensor)), Some(Some(numbers))) =
            (self.inputs.get(data), self.inputs.get(by))
        else {
            return Err(format!("inputs {data} and {by} are not both there"));
        };
        let length = tensor.shape().dims()[own];
        let order = self.rng.shuffled(length);
        let mut place = vec![0i64; length];
        for (new, &old) in order.iter().enumerate() {
            place[old] = i64::try_from(new).unwrap_or(0);
        }
        let wide = self.cast(numbers, DType::I64)?;
        let wide = wide.as_slice::<i64>().map_err(|e| e.to_string())?;
        let signed = i64::try_from(length).unwrap_or(i64::MAX);
        let moved: Vec<i64> = wide
            .iter()
            .map(|&n| {
                let n = if n < 0 { n + signed } else { n };
                usize::try_from(n).ok().and_then(|n| place.get(n)).copied().unwrap_or(n)
            })
            .collect();
        let moved = Tensor::from_slice(numbers.shape().clone(), &moved);
        let moved = self.cast(&moved.map_err(|e| e.to_string())?, numbers.dtype())?;
        inputs[data] = Some(self.pick(tensor, own, &order)?);
        inputs[by] = Some(moved);
        let outputs = run(self.op, &self.ctx, &inputs).map_err(|e| e.to_string())?;
        self.outputs.iter().zip(&outputs).try_for_each(|(plain, varied)| self.same(plain, varied))
    }

    fn moves(&self, complaints: &mut Vec<String>) {
        if !self.op.moves() {
            return;
        }
        for (o, output) in self.outputs.iter().enumerate() {
            let size = output.dtype().size();
            let same = self.inputs.iter().flatten().filter(|x| x.dtype() == output.dtype());
            // Outputs of strings have a table of their own, so their numbers differ from the
            // inputs'.
            if size == 0 || output.dtype() == DType::Str {
                continue;
            }
            let known: std::collections::HashSet<&[u8]> =
                same.flat_map(|x| x.as_bytes().chunks_exact(size)).collect();
            let new = output.as_bytes().chunks_exact(size).find(|element| !known.contains(element));
            if let Some(bytes) = new {
                complaints.push(format!("it moves, but output {o} has {bytes:?}, no input's"));
            }
        }
    }

    fn overwrites(&self, complaints: &mut Vec<String>) -> Result<()> {
        let infos = infos(&views(self.inputs))?;
        let given: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
        for i in self.op.overwrites(&given, &self.op.infer(&given)?) {
            let Some(Some(over)) = self.inputs.get(i) else {
                complaints.push(format!("it writes over input {i}, which is not there"));
                continue;
            };
            let mut rest = views(self.inputs);
            rest[i] = None;
            // A new tensor, because a shared one would be copied before it is written.
            let own = Tensor::from_bytes(over.dtype(), over.shape().clone(), over.as_bytes())?;
            let outputs = self.op.run_over(&self.ctx, Given { input: i, tensor: own }, &rest)?;
            let same = outputs.len() == self.outputs.len()
                && outputs.iter().zip(&self.outputs).all(|(a, b)| self.same(b, a).is_ok());
            if !same {
                complaints.push(format!("written over input {i} the outputs are others"));
            }
        }
        Ok(())
    }

    fn pick(&self, tensor: &Tensor, axis: usize, at: &[usize]) -> Result<Tensor, String> {
        let signed = |n: &usize| i64::try_from(*n).unwrap_or(i64::MAX);
        let at: Vec<i64> = at.iter().map(signed).collect();
        let at = Tensor::from_slice([at.len()], &at).map_err(|e| e.to_string())?;
        let gather = Gather { axis: signed(&axis) };
        let views = [Some(tensor.view()), Some(at.view())];
        let mut picked = launch(&gather, &self.ctx, &views).map_err(|e| e.to_string())?;
        picked.pop().ok_or_else(|| "nothing was picked".to_owned())
    }

    fn cast(&self, tensor: &Tensor, to: DType) -> Result<Tensor, String> {
        let cast = Cast { to }.run(&self.ctx, &[Some(tensor.view())]).map_err(|e| e.to_string())?;
        cast.into_iter().next().ok_or_else(|| "nothing was cast".to_owned())
    }

    /// Whether two tensors are equal up to the rounding of sums in another order.
    fn same(&self, expected: &Tensor, given: &Tensor) -> Result<(), String> {
        if expected == given {
            return Ok(());
        }
        if expected.dtype() != given.dtype() || expected.shape() != given.shape() {
            let (a, b) = (expected.shape(), given.shape());
            return Err(format!("{} {b:?}, expected {} {a:?}", given.dtype(), expected.dtype()));
        }
        let near = match expected.dtype() {
            DType::F64 => 1e-9,
            DType::F32 => 1e-4,
            dtype if dtype.is_float() => 2e-2,
            _ => 0.,
        };
        let (a, b) = (self.cast(expected, DType::F64)?, self.cast(given, DType::F64)?);
        let slice = |t| Tensor::as_slice::<f64>(t).map_err(|e| e.to_string());
        let (a, b) = (slice(&a)?, slice(&b)?);
        let largest = a.iter().filter(|x| x.is_finite()).fold(0f64, |m, x| m.max(x.abs()));
        let differs = |(a, b): &(&f64, &f64)| {
            let close = (*a - *b).abs() <= near * (largest + a.abs());
            !(close || a == b || (a.is_nan() && b.is_nan()))
        };
        match a.iter().zip(b).enumerate().find(|(_, pair)| differs(pair)) {
            Some((i, (a, b))) => Err(format!("element {i} is {b}, expected {a}")),
            None => Ok(()),
        }
    }
}
