//! `coordinator`, hidden: the background process of `start`. It gets its settings on stdin and
//! announces once on stdout whether it is ready. A line on stdin then confirms the announcement;
//! without it, `start` was interrupted and the coordinator ends.

use crate::cluster::host;
use crate::failure::{Failure, Result};
use crate::folder::{self, Endpoint};
use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::sync::mpsc;
use tokio::sync::oneshot;

/// The one line on the coordinator's stdout.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Announcement {
    /// The coordinator serves.
    Ready(Endpoint),
    /// The coordinator does not serve.
    Failed(Failure),
}

/// Runs the command.
pub(crate) fn run() -> Result<()> {
    let settings: Settings = serde_json::from_str(&read_line())
        .map_err(|_| Failure::usage("a coordinator process is started by radeon-cluster start"))?;
    let log = folder::log_file(&settings.data);
    crate::logging::init_file("info", settings.log_format, &log);
    // A session of its own, so that it outlives the terminal. The call fails only for the leader of
    // a process group, which a child is not.
    let _ = rustix::process::setsid();
    // Read by a thread of its own, so that the end of stdin is noticed while workers still start.
    let (stays, word) = mpsc::channel();
    let (gone, abandoned) = oneshot::channel();
    std::thread::spawn(move || {
        // Without a receiver the process ends or has ended.
        let _ = if read_line().is_empty() { gone.send(()).is_ok() } else { stays.send(()).is_ok() };
    });
    let abandoned = async {
        if abandoned.await.is_err() {
            // The confirmation came.
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

/// Fails when `start` has gone: then no coordinator is wanted.
fn announce(announcement: &Announcement) -> Result<()> {
    let mut line = serde_json::to_vec(announcement).map_err(Failure::internal)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line).and_then(|()| stdout.flush()).map_err(|_| Failure::interrupted())
}
