//! Several requests in one run.

use crate::error::{Error, Result};
use crate::model::ValueSpec;
use crate::run_options::RunOptions;
use crate::session::Session;
use lgp_compute::{Context, launch, ops};
use lgp_memory::{Dim, Layout, NamedTensor, Tensor, TensorView};

impl Session {
    /// Runs several requests as one batch: the inputs are joined along their first axis, and the
    /// outputs are cut apart again. The first dimension of every input and output must be the same
    /// symbol, by which a model says that it takes batches.
    ///
    /// # Errors
    /// [`Error::Batch`] for a model without such a dimension, and as [`Session::run`] for a request
    /// that does not fit the others or the model.
    pub fn run_batch(&self, requests: &[Vec<NamedTensor>]) -> Result<Vec<Vec<NamedTensor>>> {
        self.run_batch_with(requests, RunOptions::new())
    }

    /// Runs several requests as one batch, as the options say. A profile covers all requests
    /// together; its total includes joining the inputs and cutting the outputs.
    ///
    /// # Errors
    /// As [`Session::run_batch`], and [`Error::Stopped`].
    pub fn run_batch_with(
        &self,
        requests: &[Vec<NamedTensor>],
        options: RunOptions<'_>,
    ) -> Result<Vec<Vec<NamedTensor>>> {
        options.apply(&self.ctx, |ctx, recorder| {
            self.run_joined(requests, |views| self.run_tensors(ctx, views, recorder))
        })
    }

    fn run_joined(
        &self,
        requests: &[Vec<NamedTensor>],
        run: impl FnOnce(&[(&str, TensorView<'_>)]) -> Result<Vec<NamedTensor>>,
    ) -> Result<Vec<Vec<NamedTensor>>> {
        let symbol = batch_symbol(self.inputs(), self.outputs())?;
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let mut sizes = Vec::with_capacity(requests.len());
        for (i, request) in requests.iter().enumerate() {
            check_names(i, request, self.inputs())?;
            sizes.push(rows(request)?);
        }
        let total: usize = sizes.iter().sum();
        let ctx = Context::new(1);
        let concat = ops::Concat { axis: 0 };
        let mut joined: Vec<NamedTensor> = Vec::with_capacity(self.inputs().len());
        for input in self.inputs() {
            let parts = requests.iter().flatten().filter(|part| part.name == input.name);
            let parts: Vec<_> = parts.map(|part| Some(part.tensor.view())).collect();
            let whole = launch(&concat, &ctx, &parts).map_err(|e| Error::Batch {
                message: format!("input '{}' cannot be joined: {e}", input.name),
            })?;
            joined.extend(whole.into_iter().map(|t| NamedTensor::new(input.name.clone(), t)));
        }
        let views: Vec<(&str, TensorView<'_>)> =
            joined.iter().map(|x| (x.name.as_str(), x.tensor.view())).collect();
        let outputs = run(&views)?;
        let mut answers: Vec<Vec<NamedTensor>> = vec![Vec::new(); requests.len()];
        for output in &outputs {
            // With another number of rows, a request would get rows of another request.
            if output.tensor.shape().first() != Some(&total) {
                let (name, shape) = (&output.name, output.tensor.shape().dims());
                let message = format!(
                    "output '{name}' has shape {shape:?}, expected {total} rows ({symbol})"
                );
                return Err(Error::Batch { message });
            }
            let mut start = 0;
            for (answer, &rows) in answers.iter_mut().zip(&sizes) {
                let part = cut(&output.tensor, start, rows).map_err(|error| Error::Batch {
                    message: format!("output '{}' has no {symbol} rows: {error}", output.name),
                })?;
                answer.push(NamedTensor::new(output.name.clone(), part));
                start += rows;
            }
        }
        Ok(answers)
    }
}

/// The symbol that all inputs and outputs begin with.
fn batch_symbol(inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Result<String> {
    let mut found: Option<String> = None;
    for spec in inputs.iter().chain(outputs) {
        let first = spec.ty.shape.as_ref().and_then(|shape| shape.0.first());
        match (first, &found) {
            (Some(Dim::Symbol(symbol)), None) => found = Some(symbol.to_string()),
            (Some(Dim::Symbol(symbol)), Some(known)) if **symbol == **known => {}
            _ => {
                let message = format!(
                    "'{}' is {}, expected a first dimension that all inputs and outputs share",
                    spec.name, spec.ty
                );
                return Err(Error::Batch { message });
            }
        }
    }
    found.ok_or_else(|| Error::Batch { message: "the model takes no input".to_owned() })
}

/// Fails unless a request gives every input once, and nothing else.
fn check_names(number: usize, request: &[NamedTensor], inputs: &[ValueSpec]) -> Result<()> {
    let mut given: Vec<&str> = request.iter().map(|part| part.name.as_str()).collect();
    let mut expected: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    given.sort_unstable();
    expected.sort_unstable();
    if given == expected {
        return Ok(());
    }
    let (given, expected) = (given.join("', '"), expected.join("', '"));
    let message = format!("request {number} gives '{given}', expected '{expected}'");
    Err(Error::Batch { message })
}

/// The first dimension that a request's inputs share.
fn rows(request: &[NamedTensor]) -> Result<usize> {
    let mut rows = None;
    for input in request {
        let size = input.tensor.shape().first().copied();
        if size.is_none() || rows.is_some_and(|rows| Some(rows) != size) {
            let message = format!("input '{}' does not begin as the request's others", input.name);
            return Err(Error::Batch { message });
        }
        rows = size;
    }
    rows.ok_or_else(|| Error::Batch { message: "a request has no input".to_owned() })
}

/// Rows of a tensor.
fn cut(x: &Tensor, start: usize, rows: usize) -> Result<Tensor, lgp_memory::Error> {
    let mut dims = x.shape().to_vec();
    if let Some(first) = dims.first_mut() {
        *first = rows;
    }
    let mut out = Tensor::zeros(x.dtype(), dims)?;
    if rows > 0 {
        let view = Layout::contiguous(x.shape())?.sliced(0, start, 1, rows)?;
        view.copy(x.dtype().size(), x.as_bytes(), out.as_bytes_mut()?)?;
    }
    Ok(match x.string_table() {
        Some(table) => out.or_table(table),
        None => out,
    })
}
