//! Requests to stop that come as signals: ctrl-C, SIGTERM, and the end of the terminal.

use crate::failure::{Failure, Result};
use crate::output::Output;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a process to end.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` where the parent set the signal to be ignored, as `nohup` does.
    hangup: Option<Signal>,
}

impl Signals {
    /// Starts to listen; from now on these signals do not kill the process.
    pub(crate) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(Failure::internal);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: if ignores_hangup() { None } else { Some(listen(SignalKind::hangup())?) },
        })
    }

    /// The result of `work`, unless a signal comes first.
    ///
    /// # Errors
    /// Those of the work; `interrupted`.
    pub(crate) async fn until<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            result = work => result,
            () = self.next() => Err(Failure::interrupted()),
        }
    }

    /// Resolves at the next signal.
    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = hangup => {}
        }
    }
}

/// From now on these signals end the process with the failure that `word` makes then. For commands that wait without a
/// runtime.
///
/// # Errors
/// When the system refuses a thread or a handler.
pub(crate) fn on_interrupt(
    word: impl FnOnce() -> Failure + Send + 'static,
    out: Output,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::internal)?;
    let mut signals = {
        let _context = runtime.enter();
        Signals::listen()?
    };
    std::thread::spawn(move || {
        runtime.block_on(signals.next());
        let word = word();
        lgp_hal::exit(word.report(out.is_json()));
    });
    Ok(())
}

/// Whether SIGHUP was ignored when the process began, as the kernel's mask has it (proc(5)).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Signal 1 is the lowest bit.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|m| m & 1 == 1)
}
