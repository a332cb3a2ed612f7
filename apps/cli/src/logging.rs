//! Logs, on stderr: `RUST_LOG` says how much, the setting `log_format` in which form.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

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

/// Starts to log. `default` is the level unless `RUST_LOG` names another.
pub(crate) fn init(default: &str, format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that cannot be written, for the disk is full or the reader has gone, is dropped:
        // reporting that would panic, and end whichever task logs.
        .log_internal_errors(false);
    // Each fails only where logging has begun already.
    let _ = match format {
        LogFormat::Text => lines.with_ansi(colour).try_init(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_span_list(false).with_ansi(false).try_init()
        }
    };
}
