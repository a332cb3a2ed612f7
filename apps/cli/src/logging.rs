//! Logs, on stderr: `RUST_LOG` says how much.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts to log. `default` is the level unless `RUST_LOG` names another.
pub(crate) fn init(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // Fails only where logging has begun already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that cannot be written, for the disk is full or the reader has gone, is dropped:
        // reporting that would panic, and end whichever task logs.
        .log_internal_errors(false)
        .with_ansi(colour)
        .try_init();
}
