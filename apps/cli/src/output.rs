//! Results on stdout, as text or as one JSON value; notes, questions and progress on stderr.

mod plain;

pub(crate) use plain::plain;

use crate::failure::{Failure, Result};
use comfy_table::{Cell, Color};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// Whether the command line asks for JSON. The flag is looked for by hand because a command line that does
/// not parse must be reported as JSON too.
pub(crate) fn is_json_wanted() -> bool {
    std::env::args_os().any(|arg| arg == "--json")
}

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

    /// Whether output is lost: stdout is the null device, which also replaces a closed stdout.
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
        print(&line)
    }

    /// Results that come one after another.
    pub(crate) fn list(self) -> List {
        List { out: self, is_begun: false }
    }

    /// Prints a note for people on stderr; silent with `--json`.
    pub(crate) fn note(self, text: impl AsRef<str>) {
        if !self.json {
            // A closed stderr is no reason to stop working.
            let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
        }
    }

    /// Says after a second what the command waits for, unless the answer has been dropped by then.
    pub(crate) fn waiting(self, for_what: impl Into<String>) -> Waiting {
        let (done, ended) = mpsc::channel();
        let what = for_what.into();
        std::thread::spawn(move || {
            if ended.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
                self.note(format!("waiting for {what}"));
            }
        });
        Waiting { _done: done }
    }

    /// Asks a person at a terminal to confirm a loss. Programs are not asked.
    ///
    /// # Errors
    /// `not_confirmed` where the answer is not yes.
    pub(crate) fn confirm(self, what: impl Display, yes: Yes) -> Result<()> {
        let (stdin, stderr) = (std::io::stdin(), std::io::stderr());
        if yes.yes || self.json || !stdin.is_terminal() || !stderr.is_terminal() {
            return Ok(());
        }
        ask(&what.to_string(), &mut stdin.lock(), &mut stderr.lock())
    }

    /// A progress bar on stderr; it draws nothing where stderr is no terminal or with `--json`.
    pub(crate) fn progress(self, length: u64, what: &'static str) -> ProgressBar {
        self.bar(length, what, "{msg} [{bar:40}] {pos}/{len} {rate}")
    }

    /// As [`Self::progress`], in bytes.
    pub(crate) fn progress_bytes(self, length: u64, what: &'static str) -> ProgressBar {
        self.bar(length, what, "{msg} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec}")
    }

    /// A spinner with the elapsed time, for work of unknown length.
    pub(crate) fn busy(self, what: &'static str) -> ProgressBar {
        let bar = self.bar(0, what, "{spinner} {msg} {elapsed}");
        bar.enable_steady_tick(TICK);
        bar
    }

    fn bar(self, length: u64, what: &'static str, form: &str) -> ProgressBar {
        let target =
            if self.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(length), target).with_message(what);
        match ProgressStyle::with_template(form) {
            Ok(style) => bar.with_style(style.with_key("rate", rate).progress_chars("=> ")),
            Err(_) => bar,
        }
    }
}

/// The rate for a progress bar, as in `3.5/s`.
fn rate(state: &ProgressState, to: &mut dyn std::fmt::Write) {
    // A bar that cannot be drawn is no reason to stop working.
    let _ = write!(to, "{:.1}/s", state.per_sec());
}

/// The wait after which a command says what it waits for.
const SOON: Duration = Duration::from_secs(1);
/// The time between two frames of a spinner.
const TICK: Duration = Duration::from_millis(100);

/// Stops the notice of [`Output::waiting`] when dropped.
pub(crate) struct Waiting {
    _done: Sender<()>,
}

/// The flag of commands by which something is lost.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Yes {
    /// Do not ask first; without a terminal nothing is asked either
    #[arg(short, long)]
    yes: bool,
}

fn ask(what: &str, from: &mut impl BufRead, to: &mut impl Write) -> Result<()> {
    let failed = |error| Failure::new("io", format!("cannot ask: {error}"));
    write!(to, "{what}; go on? [y/N] ").and_then(|()| to.flush()).map_err(failed)?;
    let mut answer = String::new();
    from.take(ANSWER_BYTES_MAX).read_line(&mut answer).map_err(failed)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new("not_confirmed", "nothing was done").hint("answer y, or give --yes")),
    }
}

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 256;

/// Results that come one after another: one list with `--json`, else each result's own text.
pub(crate) struct List {
    out: Output,
    is_begun: bool,
}

impl List {
    /// Prints the next result.
    ///
    /// # Errors
    /// As [`Output::emit`].
    pub(crate) fn add<T: Serialize>(
        &mut self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<()> {
        if !self.out.json {
            return print(&text(value));
        }
        let before = if std::mem::replace(&mut self.is_begun, true) { ",\n" } else { "[" };
        let value = serde_json::to_string(value).map_err(Failure::internal)?;
        print(&format!("{before}{value}"))
    }

    /// Ends the list, which is one JSON value then.
    ///
    /// # Errors
    /// As [`Output::emit`].
    pub(crate) fn end(self) -> Result<()> {
        match (self.out.json, self.is_begun) {
            (false, _) => Ok(()),
            (true, true) => print("]\n"),
            (true, false) => print("[]\n"),
        }
    }
}

/// Writes to stdout, at once.
fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Turns the outcome of writing to stdout into a failure.
///
/// # Errors
/// As [`Output::emit`].
pub(crate) fn written(done: std::io::Result<()>) -> Result<()> {
    done.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::broken_pipe(),
        _ => Failure::new("io", format!("cannot write the result to stdout: {error}")),
    })
}

/// The colour for the state of a task, worker, model or token. Only the first word counts.
fn colour_of(state: &str) -> Option<Color> {
    match state.split([' ', ',']).next()? {
        "ready" | "succeeded" | "valid" => Some(Color::Green),
        "running" | "queued" | "loading" | "draining" | "away" => Some(Color::Yellow),
        "failed" | "lost" | "unavailable" | "cancelled" | "expired" | "revoked" => Some(Color::Red),
        _ => None,
    }
}

/// Whether stdout is a terminal that takes colours and the environment does not forbid them.
fn has_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// A count with its noun: `1 worker`, `2 workers`.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, what: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// The heading of columns that have colours.
const STATE: &str = "state";

/// Rows under headings, aligned by columns, without lines: easy to read and to cut in a pipe. On a terminal
/// states have colours.
pub(crate) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    table_of(&headings, rows)
}

/// As [`table`], for a number of columns known only at run time.
pub(crate) fn table_of<R: IntoIterator<Item = String>>(
    headings: &[&str],
    rows: impl IntoIterator<Item = R>,
) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(headings);
    let has_colour = has_colour();
    let colours: Vec<bool> = headings.iter().map(|it| has_colour && *it == STATE).collect();
    if !has_colour {
        // The crate would otherwise detect terminals by its own rules.
        table.force_no_tty();
    }
    for row in rows {
        let mut colours = colours.iter();
        table.add_row(row.into_iter().map(|text| {
            let is_state = colours.next().is_some_and(|is_state| *is_state);
            let cell = Cell::new(plain(&text));
            match colour_of(&text).filter(|_| is_state) {
                Some(colour) => cell.fg(colour),
                None => cell,
            }
        }));
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

/// The items of a JSON array; any other value has none.
pub(crate) fn array(value: &serde_json::Value) -> &[serde_json::Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A JSON value as a table shows it: a string bare and [`plain`], nothing as a dash.
pub(crate) fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "-".to_owned(),
        serde_json::Value::String(text) => plain(text).into_owned(),
        other => plain(&other.to_string()).into_owned(),
    }
}

/// The fields of an object, one a line; nested objects are indented.
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
    use super::plain::is_control;
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
    fn only_a_clear_yes_goes_on() {
        for (answer, goes_on) in [
            ("y\n", true),
            ("YES\n", true),
            ("\n", false),
            ("", false),
            ("n\n", false),
            ("yeah\n", false),
        ] {
            let mut told = Vec::new();
            let asked = ask("model m is deleted", &mut answer.as_bytes(), &mut told);
            assert_eq!(asked.is_ok(), goes_on, "{answer:?}");
            assert_eq!(told, b"model m is deleted; go on? [y/N] ");
        }
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
