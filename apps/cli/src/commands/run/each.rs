//! Many files, each with its own run and row.

use super::Args;
use crate::classes::Classes;
use crate::failure::{Failure, Result};
use crate::many::{Row, Rows};
use crate::model::Loaded;
use crate::output::Output;
use crate::{files, inputs, outputs, task};
use lgp_common::vision::Scaling;
use lgp_measure::data;
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{Datum, Dim, NamedTensor};
use std::path::{Path, PathBuf};

/// Runs a model on each of many files.
pub(super) struct Each<'a> {
    pub(super) args: &'a Args,
    pub(super) loaded: &'a Loaded,
    pub(super) classes: &'a Classes,
    pub(super) input: &'a ValueSpec,
    pub(super) scaling: &'a Scaling,
}

/// A model's outputs by name.
type Outputs = Vec<(String, Datum)>;

impl Each<'_> {
    /// Runs the files, `--batch` of them at a time.
    pub(super) fn run(&self, files: &[PathBuf], out: Output) -> Result<()> {
        let batch = usize::from(self.args.batch);
        let first = self.input.ty.shape.as_ref().and_then(|shape| shape.0.first());
        if let (true, Some(size)) = (batch > 1, first.and_then(Dim::known)) {
            let name = &self.input.name;
            let message = format!("--batch is {batch}, and input '{name}' takes {size} at a time");
            return Err(Failure::usage(message).hint("leave --batch out"));
        }
        if let Some(folder) = &self.args.output_dir {
            files::make_writable_folder(folder)?;
        }
        let prefixes = outputs::prefixes(files);
        let mut rows = Rows::new(out, files, self.classes);
        let mut is_told = false;
        for (files, prefixes) in files.chunks(batch).zip(prefixes.chunks(batch)) {
            let given = files.iter().map(|file| inputs::read_each(self.input, file, self.scaling));
            let (results, why) = self.together(given.collect());
            if let Some(why) = why.filter(|_| !std::mem::replace(&mut is_told, true)) {
                out.note(format!("some files run one by one: {why}"));
            }
            for ((file, prefix), result) in files.iter().zip(prefixes).zip(results) {
                rows.add(&self.row(file, prefix, result))?;
            }
        }
        rows.end()
    }

    /// The outputs of each input, and why they could not run as one batch.
    fn together(&self, given: Vec<Result<NamedTensor>>) -> (Vec<Result<Outputs>>, Option<String>) {
        let session = &self.loaded.session;
        let requests: Vec<Vec<NamedTensor>> =
            given.iter().flatten().map(|input| vec![input.clone()]).collect();
        let (mut joined, why) = match requests.len() {
            0 | 1 => (None, None),
            _ => match session.run_batch(&requests) {
                Ok(all) => (Some(all.into_iter()), None),
                Err(error) => (None, Some(error.to_string())),
            },
        };
        let mut alone = |input: NamedTensor| match joined.as_mut().and_then(Iterator::next) {
            Some(outputs) => Ok(outputs.into_iter().map(|x| (x.name, x.tensor.into())).collect()),
            None => Ok(session.run_data(data(&[input]))?),
        };
        (given.into_iter().map(|input| input.and_then(&mut alone)).collect(), why)
    }

    fn row(&self, file: &Path, prefix: &str, result: Result<Outputs>) -> Row {
        let done = result.and_then(|outputs| {
            let found = task::find(self.classes, &outputs)?;
            let written = match &self.args.output_dir {
                Some(folder) => outputs::write_as(folder, prefix, &outputs)?,
                None => outputs::shown(&outputs),
            };
            Ok(Row::done(file, found, written))
        });
        done.unwrap_or_else(|failure| Row::failed(file, &failure))
    }
}
