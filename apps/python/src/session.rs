//! A loaded model for Python.

use crate::error::Failure;
use crate::interrupt::{interruptible, without_lock};
use crate::values::{Given, given_away};
use etcetera::BaseStrategy;
use lgp_sdk::device::{DeviceLimits, device_names, open_devices};
use lgp_sdk::model::{Model, Precision, RunOptions, SessionOptions, Stop, ValueSpec};
use lgp_sdk::tensor::{Datum, Dim, Tensor, TensorView};
use pyo3::prelude::*;
use std::path::PathBuf;

/// The most threads of a run.
const THREADS_MAX: usize = 1024;

/// A model: the path of its file, or the file's bytes.
#[derive(FromPyObject)]
enum Source<'py> {
    Bytes(Bound<'py, pyo3::types::PyBytes>),
    Path(PathBuf),
}

/// A size of memory, in bytes or as text with a unit.
#[derive(FromPyObject)]
enum Size {
    Bytes(u64),
    Text(String),
}

/// A dimension for Python: its length, the name of an open one, or None.
#[derive(IntoPyObject)]
enum Length {
    Known(usize),
    Named(String),
    Open(Option<usize>),
}

/// An input or output for Python: name, kind, dtype, and the shape if its rank is known.
type Spec = (String, &'static str, &'static str, Option<Vec<Length>>);

/// A loaded model.
#[pyclass(frozen, module = "legacy_gpu._native")]
pub(crate) struct Session {
    session: lgp_sdk::model::Session,
    device: String,
}

#[pymethods]
impl Session {
    #[new]
    fn new(
        py: Python<'_>,
        model: Source<'_>,
        device: String,
        threads: Option<usize>,
        precision: &str,
        vram: Option<Size>,
    ) -> PyResult<Self> {
        let options = options(threads, precision)?;
        let limits = DeviceLimits { vram_bytes: bytes(vram)?, cache: cache(), host_bytes: None };
        let model = match &model {
            Source::Bytes(bytes) => Ok(bytes.as_bytes()),
            Source::Path(path) => Err(path),
        };
        let open = || -> Result<Self, Failure> {
            let accelerators = open_devices(&device, &limits)?;
            let device = device_names(&accelerators);
            if !accelerators.is_empty() && options.precision != Precision::Exact {
                let what = format!("precision is {precision:?}, and {device} has \"f32\" alone");
                return Err(Failure::new("usage", what).hint("leave it out, or use device=\"cpu\""));
            }
            let model = match model {
                Ok(bytes) => Model::from_bytes(bytes, None)?,
                Err(path) => Model::load(path)?,
            };
            let session = lgp_sdk::model::Session::on_devices(model, options, accelerators)?;
            Ok(Self { session, device })
        };
        Ok(without_lock(py, open)?)
    }

    /// The inputs of a run.
    #[getter]
    fn inputs(&self) -> Vec<Spec> {
        self.session.inputs().iter().map(spec).collect()
    }

    /// The outputs of a run.
    #[getter]
    fn outputs(&self) -> Vec<Spec> {
        self.session.outputs().iter().map(spec).collect()
    }

    /// The device that runs the model.
    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

    /// Runs the model once. `watched` is for the main thread, the only one that gets ctrl-C.
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<(String, Given<'py>)>,
        watched: bool,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let outputs = match inputs.iter().any(|(_, given)| matches!(given, Given::Items(_))) {
            true => {
                let owned = inputs.iter().map(|(name, given)| Ok((name.as_str(), given.owned()?)));
                let owned = owned.collect::<Result<Vec<(&str, Datum)>, Failure>>()?;
                self.work(py, watched, |stop| {
                    let options = RunOptions::new().until(stop);
                    Ok(self.session.run_data_with(owned, options)?)
                })?
            }
            false => {
                let made = inputs.iter().map(|(_, given)| given.made());
                let made = made.collect::<Result<Vec<Option<Tensor>>, Failure>>()?;
                let mut views: Vec<(&str, TensorView<'_>)> = Vec::new();
                for ((name, given), made) in inputs.iter().zip(&made) {
                    views.extend(given.view(made)?.map(|view| (name.as_str(), view)));
                }
                self.work(py, watched, |stop| {
                    let options = RunOptions::new().until(stop);
                    Ok(self.session.run_any_with(&views, options)?)
                })?
            }
        };
        let outputs = outputs.into_iter().map(|(name, value)| Ok((name, given_away(py, value)?)));
        outputs.collect()
    }
}

impl Session {
    fn work<T: Send>(
        &self,
        py: Python<'_>,
        watched: bool,
        work: impl FnOnce(&Stop) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        match watched {
            true => interruptible(py, work),
            false => Ok(without_lock(py, || work(&Stop::new()))?),
        }
    }
}

fn options(threads: Option<usize>, precision: &str) -> Result<SessionOptions, Failure> {
    let options = match threads {
        None => SessionOptions::default(),
        Some(threads) if (1..=THREADS_MAX).contains(&threads) => {
            SessionOptions::with_threads(threads)
        }
        Some(threads) => {
            let what = format!("threads is {threads}, expected 1 to {THREADS_MAX}");
            return Err(Failure::new("usage", what));
        }
    };
    let precision = match precision {
        "f32" => Precision::Exact,
        "fast" => Precision::Fast,
        "int8" => Precision::Int8,
        other => {
            let what = format!("precision is {other:?}, expected \"f32\", \"fast\" or \"int8\"");
            return Err(Failure::new("usage", what));
        }
    };
    Ok(SessionOptions { precision, ..options })
}

fn bytes(size: Option<Size>) -> Result<Option<u64>, Failure> {
    match size {
        None => Ok(None),
        Some(Size::Bytes(bytes)) => Ok(Some(bytes)),
        Some(Size::Text(text)) => {
            lgp_common::parse_size(&text).map(Some).map_err(|what| Failure::new("usage", what))
        }
    }
}

/// The platform's cache folder.
fn cache() -> Option<PathBuf> {
    let strategy = etcetera::choose_base_strategy().ok()?;
    Some(strategy.cache_dir().join("radeon-cluster"))
}

fn spec(spec: &ValueSpec) -> Spec {
    let length = |dim: &Dim| match dim {
        Dim::Known(length) => Length::Known(*length),
        Dim::Symbol(name) => Length::Named(name.to_string()),
        Dim::Unknown => Length::Open(None),
    };
    let shape = spec.ty.shape.as_ref().map(|shape| shape.0.iter().map(length).collect());
    (spec.name.clone(), spec.kind.name(), spec.ty.dtype.name(), shape)
}
