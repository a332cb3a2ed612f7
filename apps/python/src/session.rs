//! A model that is ready to run, for Python.

use crate::error::Failure;
use crate::interrupt::{interruptible, without_lock};
use crate::values::{Given, given_away};
use etcetera::BaseStrategy;
use lgp_sdk::{
    Datum, DeviceLimits, Dim, Model, Precision, SessionOptions, Stop, Tensor, TensorView,
    ValueSpec, device_names, open_devices,
};
use pyo3::prelude::*;
use std::path::PathBuf;

/// As many as a run may use.
const THREADS_MAX: usize = 1024;

/// A model as it is given: the path of its file, or the file's bytes.
#[derive(FromPyObject)]
enum Source<'py> {
    Bytes(Bound<'py, pyo3::types::PyBytes>),
    Path(PathBuf),
}

/// A size of memory in bytes, or as people write it.
#[derive(FromPyObject)]
enum Size {
    Bytes(u64),
    Text(String),
}

/// A dimension as Python gets it: a number, the name of one that is open, or nothing.
#[derive(IntoPyObject)]
enum Length {
    Known(usize),
    Named(String),
    Open(Option<usize>),
}

/// An input or output as Python gets it: name, kind, dtype, and the shape where its rank is known.
type Spec = (String, &'static str, &'static str, Option<Vec<Length>>);

/// A model that is ready to run.
#[pyclass(frozen, module = "legacy_gpu._native")]
pub(crate) struct Session {
    session: lgp_sdk::Session,
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
            let session = lgp_sdk::Session::on_devices(model, options, accelerators)?;
            Ok(Self { session, device })
        };
        Ok(without_lock(py, open)?)
    }

    /// What a run takes.
    #[getter]
    fn inputs(&self) -> Vec<Spec> {
        self.session.inputs().iter().map(spec).collect()
    }

    /// What a run answers.
    #[getter]
    fn outputs(&self) -> Vec<Spec> {
        self.session.outputs().iter().map(spec).collect()
    }

    /// Where it runs.
    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

    /// Runs the model once. `watched` is for the main thread, which alone hears of ctrl-C.
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
                self.work(py, watched, |stop| Ok(self.session.run_data_until(owned, stop)?))?
            }
            false => {
                let made = inputs.iter().map(|(_, given)| given.made());
                let made = made.collect::<Result<Vec<Option<Tensor>>, Failure>>()?;
                let mut views: Vec<(&str, TensorView<'_>)> = Vec::new();
                for ((name, given), made) in inputs.iter().zip(&made) {
                    views.extend(given.view(made)?.map(|view| (name.as_str(), view)));
                }
                self.work(py, watched, |stop| Ok(self.session.run_any_until(&views, stop)?))?
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
            lgp_sdk::parse_size(&text).map(Some).map_err(|what| Failure::new("usage", what))
        }
    }
}

/// The platform's folder for what can be made again.
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
