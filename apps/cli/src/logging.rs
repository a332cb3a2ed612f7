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
        .with_ansi(colour)
        .try_init();
}
