//! Inputs and outputs declared in a model's config file, compared with the model's own.

use super::list;
use lgp_inference::ValueSpec;
use lgp_memory::{DType, Dim, SymShape, ValueKind};

/// The section of a file that lists the inputs of requests.
pub(super) const INPUT: &str = "input";

/// Whether a port is an input or an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

/// The declaration of one input or output.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Port {
    pub(super) side: Side,
    /// The section of the file with the declaration.
    pub(super) part: &'static str,
    pub(super) name: String,
    /// The datatype; any if unset.
    pub(super) dtype: Option<DType>,
    /// The dimensions without the rows of a batch; −1 is open. Any if unset.
    pub(super) dims: Option<Vec<i64>>,
}

impl Port {
    /// Whether it declares an input of requests, as opposed to one run's.
    fn is_declared(&self) -> bool {
        self.part == INPUT
    }
}

/// All declarations of a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Ports {
    /// Whether each port has a first dimension that counts rows and is not in `dims`.
    pub(super) rows: bool,
    /// Whether each input of the model must be declared.
    pub(super) complete: bool,
    pub(super) all: Vec<Port>,
}

impl Ports {
    /// Checks that a model's inputs and outputs fit the declarations.
    pub(super) fn check(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Result<(), String> {
        for port in &self.all {
            let (side, specs) = match port.side {
                Side::Input => ("input", inputs),
                Side::Output => ("output", outputs),
            };
            let spec = specs.iter().find(|spec| spec.name == port.name).ok_or_else(|| {
                let (part, name) = (port.part, &port.name);
                format!("{part} '{name}': the model has no such {side}, but {}", list(specs))
            })?;
            self.compare(port, spec)?;
        }
        let listed = |spec: &&ValueSpec| {
            self.all.iter().any(|port| port.side == Side::Input && port.name == spec.name)
        };
        if self.complete
            && let Some(missing) = inputs.iter().find(|spec| !listed(spec))
        {
            let what = format!("input '{}' of the model is not listed", missing.name);
            return Err(format!("{what}, expected {}", list(inputs)));
        }
        let closed = |spec: &&ValueSpec| {
            let first = spec.ty.shape.as_ref().map(|shape| shape.0.first().map(Dim::known));
            // A scalar has no rows.
            first.is_some_and(|first| !matches!(first, Some(None)))
        };
        match inputs.iter().find(closed).filter(|_| self.rows) {
            Some(spec) => Err(format!(
                "max_batch_size is above 0, but input '{}' is {}, expected an open first dimension",
                spec.name, spec.ty
            )),
            None => Ok(()),
        }
    }

    /// Sets lengths that a model leaves open and a declared input fixes.
    pub(super) fn narrow(&self, inputs: &mut [ValueSpec]) {
        for port in self.all.iter().filter(|port| port.side == Side::Input) {
            let spec = inputs.iter_mut().find(|spec| spec.name == port.name);
            let shape = spec.and_then(|spec| spec.ty.shape.as_mut());
            let (true, Some(dims), Some(shape)) = (port.is_declared(), &port.dims, shape) else {
                continue;
            };
            let own = shape.0.iter_mut().skip(usize::from(self.rows));
            for (own, dim) in own.zip(dims) {
                // −1 leaves the length open.
                if let Ok(length) = usize::try_from(*dim) {
                    *own = Dim::Known(length);
                }
            }
        }
    }

    fn compare(&self, port: &Port, spec: &ValueSpec) -> Result<(), String> {
        let Port { part, name, .. } = port;
        if spec.kind != ValueKind::Tensor {
            return Err(format!("{part} '{name}': the model's is no tensor"));
        }
        if let Some(dtype) = port.dtype.filter(|dtype| *dtype != spec.ty.dtype) {
            return Err(format!("{part} '{name}': data_type is {dtype}, but it is {}", spec.ty));
        }
        let (Some(dims), Some(shape)) = (&port.dims, &spec.ty.shape) else { return Ok(()) };
        if !fits(dims, shape, self.rows) {
            let rows = if self.rows { " and rows before them" } else { "" };
            return Err(format!("{part} '{name}': dims are {dims:?}{rows}, but it is {}", spec.ty));
        }
        Ok(())
    }
}

/// Whether dimensions fit a shape; its open dimensions fit any length.
fn fits(dims: &[i64], shape: &SymShape, rows: bool) -> bool {
    let own = match (rows, shape.0.as_slice()) {
        (true, [first, rest @ ..]) if first.known().is_none() => rest,
        (true, _) => return false,
        (false, all) => all,
    };
    let same = |(dim, own): (&i64, &Dim)| own.known().is_none_or(|n| i64::try_from(n) == Ok(*dim));
    dims.len() == own.len() && dims.iter().zip(own).all(same)
}
