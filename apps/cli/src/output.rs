//! Results on stdout, as text or as one JSON value; notes and progress on stderr.

use crate::failure::{Failure, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// Where a command's results go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    /// Results as JSON or as text.
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Whether what is printed is lost: stdout is the null device, as it is too where it was closed.
    pub(crate) fn is_lost(self) -> bool {
        let null = std::fs::metadata("/dev/null");
        let stdout = std::io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let stdout = stdout.and_then(|stdout| stdout.metadata());
        matches!((null, stdout), (Ok(null), Ok(stdout)) if null.rdev() == stdout.rdev())
    }

    /// Prints a command's one result: `value` with `--json`, else the text for people.
    ///
    /// # Errors
    /// When stdout cannot be written; a reader that has gone ends the command quietly.
    pub(crate) fn emit<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        let mut line = if self.json {
            serde_json::to_string(value).map_err(Failure::internal)?
        } else {
            text(value)
        };
        if !line.is_empty() && !line.ends_with('\n') {
            line.push('\n');
        }
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error
            .kind()
        {
            ErrorKind::BrokenPipe => Failure::broken_pipe(),
            _ => Failure::new("io", format!("cannot write the result to stdout: {error}")),
        })
    }

    /// Tells a person something by the way, on stderr; silent with `--json`.
    pub(crate) fn note(self, text: impl AsRef<str>) {
        if !self.json {
            // A closed stderr is no reason to stop working.
            let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
        }
    }

    /// A progress bar on stderr; it draws nothing where stderr is no terminal or with `--json`.
    pub(crate) fn progress(self, length: u64, what: &'static str) -> ProgressBar {
        let target =
            if self.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(length), target).with_message(what);
        match ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} {per_sec}") {
            Ok(style) => bar.with_style(style.progress_chars("=> ")),
            Err(_) => bar,
        }
    }
}

/// Text from elsewhere as a terminal may show it: names and messages that workers, models and
/// clients have chosen could move its cursor, colour it, or turn the reading direction.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| match is_control(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    Cow::Owned(shown.collect())
}

/// Control characters, and those that change in which direction text is read.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// So many of something: `1 worker`, `2 workers`.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// Rows under headings, aligned by columns, without lines: easy to read and to cut in a pipe.
pub(crate) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(headings);
    for row in rows {
        table.add_row(row.map(|cell| plain(&cell).into_owned()));
    }
    // Every column is padded on both sides; the outer padding is of no use.
    let text = table.to_string();
    text.lines().map(str::trim_end).map(|line| line.strip_prefix(' ').unwrap_or(line)).fold(
        String::new(),
        |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        },
    )
}

/// A JSON value as a table shows it: a string bare and [`plain`], nothing as a dash.
pub(crate) fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "-".to_owned(),
        serde_json::Value::String(text) => plain(text).into_owned(),
        other => plain(&other.to_string()).into_owned(),
    }
}

/// The fields of an object, one a line; those of objects within it are indented.
pub(crate) fn fields(value: &serde_json::Value, indent: &str) -> String {
    let deeper = format!("{indent}  ");
    let line = |(key, value): (&String, &serde_json::Value)| {
        let key = plain(key);
        match value {
            serde_json::Value::Object(inner) if !inner.is_empty() => {
                format!("{indent}{key}\n{}", fields(value, &deeper))
            }
            serde_json::Value::Array(items) if items.iter().any(serde_json::Value::is_object) => {
                let items = items.iter().map(|item| fields(item, &deeper));
                format!("{indent}{key}\n{}", items.collect::<Vec<_>>().join("\n"))
            }
            other => format!("{indent}{key:<18} {}\n", cell(other)),
        }
    };
    value.as_object().into_iter().flatten().map(line).collect()
}

/// A byte count as a person reads it: `512 B`, `3.4 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut divisor = 1u64;
    while count / divisor >= 1024 && unit + 1 < UNITS.len() {
        divisor *= 1024;
        unit += 1;
    }
    if unit == 0 {
        return format!("{count} B");
    }
    format!("{:.1} {}", count as f64 / divisor as f64, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_fields_are_indented() {
        let value =
            serde_json::json!({"id": "w", "devices": [{"slots": 1}], "none": null, "e": {}});
        let text = fields(&value, "");
        assert_eq!(
            text,
            "devices\n  slots              1\ne                  {}\nid                 w\nnone               -\n"
        );
    }

    #[test]
    fn what_others_have_named_cannot_steer_a_terminal() {
        let evil = "a\u{1b}[2Jb\r\nc\u{9b}1m\u{202e}d";
        let shown = r"a\u{1b}[2Jb\r\nc\u{9b}1m\u{202e}d";
        assert_eq!(plain(evil), shown);
        assert_eq!(table(["name"], [[evil.to_owned()]]), format!("name\n{shown}\n"));
        assert_eq!(cell(&serde_json::json!(evil)), shown);
        let value = serde_json::json!({ evil: [evil] });
        assert!(!fields(&value, "").trim_end().contains(is_control));
        assert_eq!(plain("größe 日本 \\n"), "größe 日本 \\n", "what is harmless stays");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!(
            [0u8, 1, 2].map(|n| counted(n, "worker")),
            ["0 workers", "1 worker", "2 workers"]
        );
    }

    #[test]
    fn bytes_for_people() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (8 << 30, "8.0 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn a_table_is_aligned_and_bare() {
        let text = table(
            ["id", "name"],
            [["cpu".to_owned(), "a".to_owned()], ["opencl:0".to_owned(), "b".to_owned()]],
        );
        assert_eq!(text, "id        name\ncpu       a\nopencl:0  b\n");
    }
}
