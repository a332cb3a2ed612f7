//! Logs on stderr: `RUST_LOG` sets the level, the setting `log_format` the form.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// The size at which a log is moved to `NAME.1`, replacing the previous one.
const BYTES_MAX: u64 = 16 << 20;

/// The form of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    #[default]
    Text,
    /// A JSON object a line, for programs that collect logs
    Json,
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// A log of limited size. Other processes append to the same file, so it is copied and emptied in place: they keep
/// writing to it.
struct Short {
    path: PathBuf,
    file: File,
    bytes_max: u64,
}

impl Short {
    fn open(path: &Path, bytes_max: u64) -> std::io::Result<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Self { path: path.to_owned(), file, bytes_max })
    }
}

impl Write for Short {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if self.file.metadata()?.len() >= self.bytes_max {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            // Without room for a copy, older lines are lost.
            let _ = std::fs::copy(&self.path, aside);
            self.file.set_len(0)?;
        }
        self.file.write(line)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Starts to log. `default` is the level unless `RUST_LOG` names another.
pub(crate) fn init(default: &str, format: LogFormat) {
    begin(default, format, BoxMakeWriter::new(std::io::stderr));
}

/// Starts to log to a file of limited size, in a process whose stderr is the same file.
pub(crate) fn init_file(default: &str, format: LogFormat, path: &Path) {
    match Short::open(path, BYTES_MAX) {
        Ok(file) => begin(default, format, BoxMakeWriter::new(Mutex::new(file))),
        Err(_) => init(default, format),
    }
}

fn begin(default: &str, format: LogFormat, writer: BoxMakeWriter) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        // A line that cannot be written, on a full disk or a closed pipe, is dropped: reporting the error would panic
        // and end the task that logs.
        .log_internal_errors(false);
    // Each fails only where logging has begun already.
    let _ = match format {
        LogFormat::Text => lines.with_ansi(colour).try_init(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_span_list(false).with_ansi(false).try_init()
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_put_aside_and_others_go_on_with_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("coordinator.log");
        let mut log = Short::open(&path, 8).expect("ours");
        let mut stderr = File::options().append(true).open(&path).expect("ours");
        for (line, now, aside) in [
            ("first\n", "first\npanic\n", None),
            ("second\n", "second\npanic\n", Some("first\npanic\n")),
            ("third\n", "third\npanic\n", Some("second\npanic\n")),
        ] {
            log.write_all(line.as_bytes()).expect("a line");
            stderr.write_all(b"panic\n").expect("a line");
            assert_eq!(std::fs::read_to_string(&path).expect("ours"), now);
            let kept = std::fs::read_to_string(path.with_file_name("coordinator.log.1")).ok();
            assert_eq!(kept.as_deref(), aside);
        }
    }
}
