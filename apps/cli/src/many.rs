//! The results of many files, one row each, printed as they come.

use crate::classes::{self, Class, Classes, Found};
use crate::failure::{Failure, Result};
use crate::output::{self, List, Output};
use crate::outputs::{self, Written};
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The result of a file.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    file: String,
    /// The id of the file's task in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    /// `succeeded`, `queued`, `failed` ….
    state: String,
    /// `score` or `probability`, where there are classes.
    kind: Option<&'static str>,
    /// The classes with the highest scores of each row of the input; a picture has one row.
    top: Vec<Vec<Class>>,
    outputs: Vec<Written>,
    error: Option<Wrong>,
}

/// Why a file has no outputs.
#[derive(Debug, Serialize)]
struct Wrong {
    code: String,
    message: String,
    hint: Option<String>,
}

impl Row {
    /// A file that is not done yet.
    pub(crate) fn open(file: &Path, state: &str) -> Self {
        Self { file: file.display().to_string(), state: state.to_owned(), ..Self::default() }
    }

    /// The same file with its task in the cluster.
    pub(crate) fn of_task(self, task_id: Option<String>) -> Self {
        Self { task_id, ..self }
    }

    /// A file that has outputs.
    pub(crate) fn done(file: &Path, found: Option<Found>, outputs: Vec<Written>) -> Self {
        let Found { kind, rows } = found.unwrap_or_default();
        let kind = Some(kind).filter(|kind| !kind.is_empty());
        Self { kind, top: rows, outputs, ..Self::open(file, "succeeded") }
    }

    /// A file that has none.
    pub(crate) fn failed(file: &Path, failure: &Failure) -> Self {
        let Failure { code, message, hint, .. } = failure.clone();
        let error = Some(Wrong { code: code.into_owned(), message, hint });
        Self { error, ..Self::open(file, "failed") }
    }
}

/// The rows of many files.
pub(crate) struct Rows {
    list: List,
    bar: ProgressBar,
    /// How wide the columns of files and of classes are.
    widths: [usize; 2],
    is_begun: bool,
    failed: usize,
    total: usize,
}

impl Rows {
    pub(crate) fn new(out: Output, files: &[PathBuf], classes: &Classes) -> Self {
        const FILE_MOST: usize = 48;
        let lengths = files.iter().map(|file| file.display().to_string().chars().count());
        let bar = out.progress(u64::try_from(files.len()).unwrap_or(u64::MAX), "files");
        Self {
            list: out.list(),
            bar,
            widths: [lengths.max().unwrap_or(0).clamp(4, FILE_MOST), classes.width()],
            is_begun: false,
            failed: 0,
            total: files.len(),
        }
    }

    /// Prints the next row.
    ///
    /// # Errors
    /// As [`Output::emit`].
    pub(crate) fn add(&mut self, row: &Row) -> Result<()> {
        self.failed += usize::from(row.error.is_some());
        let heads = !std::mem::replace(&mut self.is_begun, true);
        let (list, widths) = (&mut self.list, self.widths);
        let printed = self.bar.suspend(|| list.add(row, |row| text(row, widths, heads)));
        self.bar.inc(1);
        printed
    }

    /// Ends the list.
    ///
    /// # Errors
    /// As [`Output::emit`]; `files_failed` where files have no outputs.
    pub(crate) fn end(self) -> Result<()> {
        let Self { list, bar, failed, total, .. } = self;
        bar.finish_and_clear();
        list.end()?;
        match failed {
            0 => Ok(()),
            failed => {
                let files = output::counted(total, "file");
                let message = format!("{failed} of {files} failed");
                Err(Failure::new("files_failed", message).hint("the row of each says why"))
            }
        }
    }
}

fn text(row: &Row, [file, class]: [usize; 2], heads: bool) -> String {
    let line = |name: &str, columns: [&str; 3]| {
        let [label, score, others] = columns.map(output::plain);
        let line =
            format!("{:<file$}  {label:<class$}  {score:<11}  {others}", output::plain(name));
        format!("{}\n", line.trim_end())
    };
    let head = match (heads, row.kind, &row.task_id) {
        (false, ..) => String::new(),
        (true, Some(kind), _) => line("file", ["class", kind, "others"]),
        (true, None, Some(_)) => line("file", ["task", "", ""]),
        (true, None, None) => line("file", ["outputs", "", ""]),
    };
    if let Some(wrong) = &row.error {
        let task = row.task_id.as_ref().map(|id| format!("task {id}: ")).unwrap_or_default();
        let name = output::plain(&row.file);
        return format!("{head}{name:<file$}  failed: {task}{}\n", output::plain(&wrong.message));
    }
    let row_of = |classes: &Vec<Class>| {
        let [label, score, others] = classes::columns(classes);
        line(&row.file, [&label, &score, &others])
    };
    let body = match (row.top.as_slice(), &row.task_id) {
        ([], Some(id)) if row.outputs.is_empty() => line(&row.file, [id, &row.state, ""]),
        ([], _) => line(&row.file, [&outputs::briefly(&row.outputs), "", ""]),
        (all, _) => all.iter().map(row_of).collect(),
    };
    head + &body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned_and_say_what_went_wrong() {
        let class =
            |class, label: &str, score| Class { class, label: Some(label.to_owned()), score };
        let found =
            Found { kind: "score", rows: vec![vec![class(1, "dog", 0.5), class(0, "cat", 0.25)]] };
        let done = Row::done(Path::new("a.png"), Some(found), Vec::new());
        assert_eq!(
            text(&done, [8, 5], true),
            "file      class  score        others\na.png     dog    0.5000       cat 0.2500\n"
        );
        let failed = Row::failed(Path::new("b\u{1b}.png"), &Failure::new("x", "it is no picture"));
        assert_eq!(text(&failed, [8, 5], false), "b\\u{1b}.png  failed: it is no picture\n");
        let queued = Row::open(Path::new("c"), "queued").of_task(Some("1-2".to_owned()));
        assert_eq!(text(&queued, [8, 5], false), "c         1-2    queued\n");
    }
}
