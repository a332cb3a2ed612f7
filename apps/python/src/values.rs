//! Converts values between NumPy and sessions: inputs are borrowed, outputs are handed over.

use crate::error::Failure;
use lgp_common::{for_numpy, numpy_name};
use lgp_sdk::tensor::{DType, Datum, Tensor, TensorView};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::borrow::Cow;

/// An input from Python, with its dtype's name, its shape, and its elements.
#[derive(FromPyObject)]
pub(crate) enum Given<'py> {
    /// Bytes borrowed from an array.
    Numbers(String, Vec<usize>, PyReadonlyArray1<'py, u8>),
    /// The texts of an array of strings, row-major.
    Strings(Vec<usize>, Vec<String>),
    /// The items of a sequence.
    Items(Vec<Given<'py>>),
}

impl Given<'_> {
    /// The copied tensor of an array of strings, which cannot be borrowed from Python.
    pub(crate) fn made(&self) -> Result<Option<Tensor>, Failure> {
        let Self::Strings(shape, texts) = self else { return Ok(None) };
        Ok(Some(Tensor::from_strings(shape.as_slice(), texts)?))
    }

    /// The tensor in place; `None` for a sequence. `made` is the result of [`Given::made`].
    pub(crate) fn view<'a>(
        &'a self,
        made: &'a Option<Tensor>,
    ) -> Result<Option<TensorView<'a>>, Failure> {
        match (self, made) {
            (Self::Numbers(dtype, shape, bytes), _) => Ok(Some(numbers(dtype, shape, bytes)?)),
            (_, Some(tensor)) => Ok(Some(tensor.view())),
            _ => Ok(None),
        }
    }

    /// The value, copied, because sequences own their tensors.
    pub(crate) fn owned(&self) -> Result<Datum, Failure> {
        Ok(match self {
            Self::Numbers(dtype, shape, bytes) => {
                Datum::Tensor(numbers(dtype, shape, bytes)?.to_tensor()?)
            }
            Self::Strings(shape, texts) => {
                Datum::Tensor(Tensor::from_strings(shape.as_slice(), texts)?)
            }
            Self::Items(items) => {
                Datum::Sequence(items.iter().map(Self::owned).collect::<Result<_, _>>()?)
            }
        })
    }
}

fn numbers<'a>(
    dtype: &str,
    shape: &[usize],
    bytes: &'a PyReadonlyArray1<'_, u8>,
) -> Result<TensorView<'a>, Failure> {
    let known = DType::ALL.into_iter().find(|known| known.name() == dtype);
    let known = known
        .ok_or_else(|| Failure::new("input_dtype", format!("the dtype {dtype} is not known")))?;
    let bytes = bytes.as_slice().map_err(|error| {
        Failure::new("input_invalid", format!("an input's bytes cannot be borrowed: {error}"))
    })?;
    Ok(TensorView::from_bytes(known, shape, bytes)?)
}

/// A tensor of a run that NumPy uses in place: the array keeps this object alive.
#[pyclass(frozen, module = "legacy_gpu._native")]
pub(crate) struct Array {
    /// The only owner of the bytes.
    _tensor: Tensor,
    address: usize,
    shape: Vec<usize>,
    name: &'static str,
}

#[pymethods]
impl Array {
    /// NumPy's array interface, version 3: the elements' address, in C order, writable.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", self.name)?;
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }
}

/// A run's output for Python: arrays, lists of them, dictionaries, and None for an absent value.
pub(crate) fn given_away<'py>(py: Python<'py>, value: Datum) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Datum::Tensor(tensor) if tensor.dtype() == DType::Str => strings(py, &tensor),
        Datum::Tensor(tensor) => array(py, tensor),
        Datum::Sequence(items) => {
            let items = items.into_iter().map(|item| given_away(py, item));
            Ok(PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any())
        }
        Datum::Map { keys, values } => {
            let list = |tensor| given_away(py, Datum::Tensor(tensor))?.call_method0("tolist");
            let (keys, values) = (list(keys)?, list(values)?);
            let dict = PyDict::new(py);
            for (key, value) in keys.try_iter()?.zip(values.try_iter()?) {
                dict.set_item(key?, value?)?;
            }
            Ok(dict.into_any())
        }
        Datum::Absent => Ok(py.None().into_bound(py)),
    }
}

fn array<'py>(py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let dtype = tensor.dtype();
    let failed = |error| Failure::new("out_of_memory", lgp_common::chain(&error));
    let wide = match for_numpy(&tensor).map_err(failed)? {
        Cow::Borrowed(_) => None,
        Cow::Owned(wide) => Some(wide),
    };
    let mut tensor = wide.unwrap_or(tensor);
    let name = numpy_name(tensor.dtype()).ok_or_else(|| {
        Failure::new("internal", format!("an output is {dtype}, which has no form in NumPy"))
    })?;
    let shape = tensor.shape().to_vec();
    let numpy = py.import("numpy")?;
    if tensor.is_empty() {
        return numpy.call_method1("empty", (shape, name));
    }
    // Python may write to the array, so bytes shared with the session are copied here.
    let address = tensor.as_bytes_mut().map_err(failed)?.as_mut_ptr().expose_provenance();
    numpy.call_method1("asarray", (Array { _tensor: tensor, address, shape, name },))
}

fn strings<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let texts = tensor.strings().map_err(Failure::from)?;
    let shape = tensor.shape().to_vec();
    let list = PyList::new(py, texts)?;
    let flat = py.import("numpy")?.call_method1("array", (list, "object"))?;
    flat.call_method1("reshape", (shape,))
}
