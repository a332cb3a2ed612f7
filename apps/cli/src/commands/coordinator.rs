//! `coordinator`, hidden: what `start` leaves running. Its settings come by stdin; whether it is
//! ready goes to stdout, once; then a line on stdin says that the news arrived. Without it,
//! `start` was interrupted and nothing must stay.

use crate::cluster::host;
use crate::failure::{Failure, Result};
use crate::folder::{self, Endpoint};
use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::sync::mpsc;
use tokio::sync::oneshot;

/// The one line that a coordinator writes to its stdout.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Announcement {
    /// It serves.
    Ready(Endpoint),
    /// It does not.
    Failed(Failure),
}

/// Runs the command.
pub(crate) fn run() -> Result<()> {
    let settings: Settings = serde_json::from_str(&read_line())
        .map_err(|_| Failure::usage("a coordinator process is started by radeon-cluster start"))?;
    let log = folder::log_file(&settings.data);
    crate::logging::init_file("info", settings.log_format, &log);
    // Away from the terminal: its end must not be ours. Fails only for the leader of a group,
    // which a child is not.
    let _ = rustix::process::setsid();
    // Read by a thread of its own, so that the end of stdin is noticed while workers still start.
    let (stays, word) = mpsc::channel();
    let (gone, abandoned) = oneshot::channel();
    std::thread::spawn(move || {
        // Whoever no longer listens has ended the process, or is about to.
        let _ = if read_line().is_empty() { gone.send(()).is_ok() } else { stays.send(()).is_ok() };
    });
    let abandoned = async {
        if abandoned.await.is_err() {
            // The word came.
            std::future::pending().await
        }
    };
    let mut ready = false;
    let result = host(&settings, abandoned, |endpoint| {
        ready = true;
        announce(&Announcement::Ready(endpoint.clone()))?;
        word.recv().map_err(|_| Failure::interrupted())
    });
    match result {
        Err(failure) if !ready => announce(&Announcement::Failed(failure)),
        other => other,
    }
}

/// A line of stdin; empty when it is closed or broken.
fn read_line() -> String {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(_) => line,
        Err(_) => String::new(),
    }
}

/// Fails when whoever started us has gone, and with it the wish to have a coordinator.
fn announce(announcement: &Announcement) -> Result<()> {
    let mut line = serde_json::to_vec(announcement).map_err(Failure::internal)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line).and_then(|()| stdout.flush()).map_err(|_| Failure::interrupted())
}
