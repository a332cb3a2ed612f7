//! Reading an operator's inputs: how many, of which types, with which contents.

use crate::error::{Error, Result};
use crate::op::{Op, ValueInfo};
use lgp_memory::{DType, Dim, Shape, SymShape, Tensor, TensorType, TensorView};

/// Longer contents are not tracked, because no tensor of dimensions or axes is longer.
const CONTENTS_MAX: usize = 1024;

/// An input that must be present.
pub(crate) fn required<T>(inputs: &[Option<T>], i: usize) -> Result<&T> {
    inputs
        .get(i)
        .and_then(Option::as_ref)
        .ok_or_else(|| Error::invalid(format!("input {i} is missing")))
}

/// An input that may be absent.
pub(crate) fn optional<T>(inputs: &[Option<T>], i: usize) -> Option<&T> {
    inputs.get(i).and_then(Option::as_ref)
}

/// An axis counted from the front.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize> {
    let signed = i64::try_from(rank).unwrap_or(i64::MAX);
    usize::try_from(if axis < 0 { axis.saturating_add(signed) } else { axis })
        .ok()
        .filter(|&a| a < rank)
        .ok_or_else(|| Error::invalid(format!("axis {axis} is outside a tensor of rank {rank}")))
}

/// Distinct axes counted from the front.
pub(crate) fn axes(axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut out = Vec::with_capacity(axes.len().min(rank));
    for &a in axes {
        let a = axis(a, rank)?;
        if out.contains(&a) {
            return Err(Error::invalid(format!("axis {a} is named twice in {axes:?}")));
        }
        out.push(a);
    }
    Ok(out)
}

/// Fails unless two inputs have the same dtype.
pub(crate) fn same_dtype(what: &str, expected: DType, given: DType) -> Result<()> {
    if expected == given {
        Ok(())
    } else {
        Err(Error::invalid(format!("{what} has dtype {given}, expected {expected}")))
    }
}

/// Fails for bool.
pub(crate) fn not_bool(dtype: DType) -> Result<()> {
    if dtype == DType::Bool {
        return Err(Error::invalid("dtype is bool, expected a numeric one"));
    }
    Ok(())
}

/// Fails unless the dtype is a floating-point one.
pub(crate) fn float(dtype: DType) -> Result<()> {
    if dtype.is_float() {
        Ok(())
    } else {
        Err(Error::invalid(format!("dtype is {dtype}, expected a floating-point one")))
    }
}

/// Fails unless the rank, where known, is the expected one.
pub(crate) fn rank(what: &str, info: &ValueInfo, expected: usize) -> Result<()> {
    match info.sym_shape() {
        Some(dims) if dims.len() != expected => Err(Error::invalid(format!(
            "{what} has rank {}, shape {}, expected rank {expected}",
            dims.len(),
            SymShape(dims.to_vec())
        ))),
        _ => Ok(()),
    }
}

/// Fails unless the value has one element, where that is known.
pub(crate) fn single(what: &str, info: &ValueInfo) -> Result<()> {
    match info.sym_shape() {
        Some(dims) if dims.iter().any(|d| d.known().is_some_and(|n| n != 1)) => {
            let shape = SymShape(dims.to_vec());
            Err(Error::invalid(format!("{what} has shape {shape}, expected one element")))
        }
        _ => Ok(()),
    }
}

/// One output of which the type is known.
pub(crate) fn output(dtype: DType, shape: Option<Vec<Dim>>) -> Vec<ValueInfo> {
    vec![ValueInfo::of(TensorType { dtype, shape: shape.map(SymShape) })]
}

impl ValueInfo {
    /// The dimensions, where the rank is known.
    pub(crate) fn sym_shape(&self) -> Option<&[Dim]> {
        self.ty.shape.as_ref().map(|shape| shape.0.as_slice())
    }

    /// The contents of an i32 or i64 value, where all are known.
    pub(crate) fn ints(&self, what: &str) -> Result<Option<Vec<i64>>> {
        if !matches!(self.ty.dtype, DType::I32 | DType::I64) {
            let dtype = self.ty.dtype;
            return Err(Error::invalid(format!("{what} has dtype {dtype}, expected i64")));
        }
        if let Some(constant) = &self.constant {
            return Ok(Some(integers(constant)?));
        }
        Ok(self.dims.as_ref().and_then(|dims| {
            dims.iter().map(|d| d.known().and_then(|n| i64::try_from(n).ok())).collect()
        }))
    }

    /// The contents as dimensions: a constant's elements or the tracked dimensions. An entry that
    /// is no dimension, such as -1, is unknown.
    pub(crate) fn contents(&self) -> Option<Vec<Dim>> {
        if let Some(dims) = &self.dims {
            return Some(dims.clone());
        }
        let constant = self.constant.as_ref()?;
        if constant.shape().rank() > 1 || constant.len() > CONTENTS_MAX {
            return None;
        }
        let known = |n: i64| usize::try_from(n).map_or(Dim::Unknown, Dim::Known);
        Some(integers(constant).ok()?.into_iter().map(known).collect())
    }

    /// A shape that this value holds: its contents, or as many unknown dimensions as it has
    /// elements; `None` when not even the rank is known.
    pub(crate) fn target_shape(&self) -> Result<Option<Vec<Dim>>> {
        if let Some(sizes) = self.ints("the shape")? {
            let dim = |&n: &i64| usize::try_from(n).map(Dim::Known);
            let dims = sizes.iter().map(dim).collect::<Result<_, _>>();
            return dims.map(Some).map_err(|_| {
                Error::invalid(format!("the shape is {sizes:?}, expected no negative entry"))
            });
        }
        Ok(self.contents().or_else(|| {
            let length = self.sym_shape()?.first()?.known()?;
            (length <= CONTENTS_MAX).then(|| vec![Dim::Unknown; length])
        }))
    }

    /// Attaches tracked contents, if they are few enough and there is one for each element.
    pub(crate) fn with_contents(mut self, dims: Option<Vec<Dim>>) -> Self {
        let elements = self.ty.concrete_shape().filter(|s| s.rank() <= 1).map(|s| s.elements());
        self.dims = dims.filter(|d| d.len() <= CONTENTS_MAX && elements == Some(Ok(d.len())));
        self
    }
}

/// The elements of an i32 or i64 tensor.
pub(crate) fn integers(tensor: &Tensor) -> Result<Vec<i64>> {
    Ok(match tensor.dtype() {
        DType::I32 => tensor.as_slice::<i32>()?.iter().map(|&n| n.into()).collect(),
        _ => tensor.as_slice::<i64>()?.to_vec(),
    })
}

/// The contents of an integer input, or the attribute in its place where the input is absent. The
/// outer option is `None` where both are absent, the inner one where the contents are unknown.
#[allow(clippy::option_option, reason = "absent and unknown are different")]
pub(crate) fn ints_or(
    what: &str,
    input: Option<&&ValueInfo>,
    attribute: Option<&[i64]>,
) -> Result<Option<Option<Vec<i64>>>> {
    match (input, attribute) {
        (Some(info), _) => {
            // One axis is often written without brackets around it.
            if info.sym_shape().is_some_and(|dims| dims.len() > 1) {
                rank(what, info, 1)?;
            }
            Ok(Some(info.ints(what)?))
        }
        (None, attribute) => Ok(attribute.map(|a| Some(a.to_vec()))),
    }
}

/// The outputs' dtypes and shapes for actual inputs, whose number was checked. `infer_types` infers
/// them from shapes without symbols, and validates the inputs.
pub(crate) fn concrete(
    op: &dyn Op,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<(DType, Shape)>> {
    let infos = infos(inputs)?;
    let infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
    op.infer_types(&infos)?
        .into_iter()
        .map(|out| match out.ty.concrete_shape() {
            Some(shape) => Ok((out.ty.dtype, shape)),
            None => Err(Error::unsupported(format!("an output of type {}", out.ty))),
        })
        .collect()
}

/// [`concrete`] for an operator of one output.
pub(crate) fn concrete_one(
    op: &dyn Op,
    inputs: &[Option<TensorView<'_>>],
) -> Result<(DType, Shape)> {
    concrete(op, inputs)?.pop().ok_or_else(|| Error::invalid("there is no output"))
}

/// The infos of actual inputs, as if their types were known at compile time.
pub(crate) fn infos(inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Option<ValueInfo>>> {
    inputs.iter().map(|x| x.as_ref().map(info_of).transpose()).collect()
}

/// The info of an actual input. Short vectors carry their value, because operators may read shapes
/// and axes from them.
fn info_of(view: &TensorView<'_>) -> Result<ValueInfo> {
    let mut info = ValueInfo::of(TensorType::concrete(view.dtype(), view.shape()));
    let indices = matches!(view.dtype(), DType::I32 | DType::I64 | DType::F32);
    if view.shape().rank() <= 1 && view.len() <= if indices { CONTENTS_MAX } else { 1 } {
        info.constant = Some(view.to_tensor()?);
    }
    Ok(info)
}

/// The contents of the outputs of an operator that only moves elements, from the tracked contents
/// of its inputs: the operator runs on the positions of the contents.
///
/// `data` is the range of inputs whose elements move; all others must be constants. `None` when no
/// contents are tracked.
pub(crate) fn moved(
    op: &dyn Op,
    inputs: &[Option<&ValueInfo>],
    data: std::ops::Range<usize>,
) -> Option<Vec<Vec<Dim>>> {
    // Inputs without tracked contents are constants, which the graph folds.
    if !inputs.get(data.clone())?.iter().flatten().any(|x| x.dims.is_some()) {
        return None;
    }
    let mut all: Vec<Dim> = Vec::new();
    let mut tensors: Vec<Option<Tensor>> = Vec::new();
    for (i, info) in inputs.iter().enumerate() {
        tensors.push(match info {
            None => None,
            Some(info) if data.contains(&i) => {
                let contents = info.contents()?;
                let from = i64::try_from(all.len()).ok()?;
                let positions: Vec<i64> = (from..).take(contents.len()).collect();
                all.extend(contents);
                Some(Tensor::from_slice(info.ty.concrete_shape()?, &positions).ok()?)
            }
            Some(info) => Some(info.constant.clone()?),
        });
    }
    let views: Vec<Option<TensorView<'_>>> =
        tensors.iter().map(|t| t.as_ref().map(Tensor::view)).collect();
    let outputs = op.run(&crate::Context::new(1), &views).ok()?;
    outputs
        .iter()
        .map(|out| {
            let positions = out.as_slice::<i64>().ok()?;
            positions.iter().map(|&p| all.get(usize::try_from(p).ok()?).cloned()).collect()
        })
        .collect()
}

/// One output, whose contents moved from the inputs `data` where those are tracked.
pub(crate) fn output_moved(
    op: &dyn Op,
    inputs: &[Option<&ValueInfo>],
    data: std::ops::Range<usize>,
    shape: Option<Vec<Dim>>,
) -> Result<Vec<ValueInfo>> {
    let dtype = required(inputs, 0)?.ty.dtype;
    // Only shapes are tracked: larger contents are not worth the memory while a model is compiled.
    let elements = shape
        .as_ref()
        .and_then(|shape| shape.iter().try_fold(1usize, |n, dim| n.checked_mul(dim.known()?)));
    let mut out = output(dtype, shape);
    if elements.is_none_or(|n| n > CONTENTS_MAX) {
        return Ok(out);
    }
    if let Some(contents) = moved(op, inputs, data).and_then(|mut c| c.pop()) {
        out = out.into_iter().map(|o| o.with_contents(Some(contents.clone()))).collect();
    }
    Ok(out)
}
