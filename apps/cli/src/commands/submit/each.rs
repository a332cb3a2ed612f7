//! Many files, each with its own task and row.

use super::{Args, interrupted};
use crate::classes::Classes;
use crate::cluster::on_interrupt;
use crate::failure::Result;
use crate::many::{Row, Rows};
use crate::output::{self, Output};
use crate::rest::Client;
use crate::{inputs, outputs, task};
use lgp_common::vision::Scaling;
use lgp_sdk::model::ValueSpec;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Files that are read, sent or waited for at the same time.
const PARALLEL: usize = 16;
/// The first and the longest wait where the coordinator has no room for more tasks.
const NO_ROOM: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The codes for a full coordinator.
const FULL: [&str; 3] = ["overloaded", "backlog", "busy"];
/// The codes after which the next file would fail too.
const HOPELESS: [&str; 7] = [
    "not_running",
    "unreachable",
    "not_answering",
    "unauthorized",
    "forbidden",
    "stopping",
    "unknown_model",
];

/// Submits each of many files.
pub(super) struct Each<'a> {
    pub(super) args: &'a Args,
    pub(super) client: &'a Client,
    pub(super) classes: &'a Classes,
    pub(super) input: &'a ValueSpec,
    pub(super) scaling: &'a Scaling,
}

/// Tasks that were accepted and are not finished.
type Open = Arc<Mutex<BTreeSet<String>>>;

impl Each<'_> {
    /// Submits the files, a few at a time. Prints each once it is accepted or, with `--wait`, finished.
    pub(super) fn run(&self, files: &[PathBuf], out: Output) -> Result<()> {
        let prefixes = outputs::prefixes(files);
        let open = Open::default();
        let known = Arc::clone(&open);
        let here = self.args.target.words();
        let word = move || interrupted(&lock(&known).iter().cloned().collect::<Vec<_>>(), &here);
        on_interrupt(word, out)?;
        if self.args.wait {
            out.note("ctrl-C stops the waiting, not the tasks that were accepted");
        }
        let mut rows = Rows::new(out, files, self.classes);
        let (next, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut ended = Ok(());
        std::thread::scope(|scope| {
            let (done, results) = mpsc::channel();
            for _ in 0..PARALLEL.min(files.len()) {
                let (done, next, ends, open, prefixes) =
                    (done.clone(), &next, &ends, &open, &prefixes);
                scope.spawn(move || self.work(files, prefixes, (next, ends), open, &done));
            }
            drop(done);
            for result in results {
                let told = result.and_then(|row| rows.add(&row));
                if let Err(failure) = told {
                    ends.store(true, Ordering::Relaxed);
                    if ended.is_ok() {
                        ended = Err(failure);
                    }
                }
            }
        });
        let finished = rows.end();
        ended.and(finished)
    }

    /// Takes files until none is left or further ones would fail too.
    fn work(
        &self,
        files: &[PathBuf],
        prefixes: &[String],
        (next, ends): (&AtomicUsize, &AtomicBool),
        open: &Open,
        done: &Sender<Result<Row>>,
    ) {
        while !ends.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(file), Some(prefix)) = (files.get(at), prefixes.get(at)) else { return };
            let mut id = None;
            let result = match self.one((file, prefix), (open, ends), &mut id) {
                Err(failure) if HOPELESS.contains(&&*failure.code) => Err(failure),
                Err(failure) => Ok(Row::failed(file, &failure).of_task(id)),
                Ok(row) => Ok(row.of_task(id)),
            };
            if done.send(result).is_err() {
                return;
            }
        }
    }

    fn one(
        &self,
        (file, prefix): (&Path, &str),
        (open, ends): (&Open, &AtomicBool),
        at: &mut Option<String>,
    ) -> Result<Row> {
        let input = inputs::read_each(self.input, file, self.scaling)?;
        // Files of different folders may have one name.
        let key = self.args.key.as_ref().map(|key| format!("{key}/{}", file.display()));
        let mut pause = NO_ROOM.0;
        let accepted: Value = loop {
            match self.args.submit(self.client, std::slice::from_ref(&input), key.clone()) {
                Err(failure) if FULL.contains(&&*failure.code) && !ends.load(Ordering::Relaxed) => {
                    std::thread::sleep(pause);
                }
                answered => break answered?,
            }
            pause = (pause * 2).min(NO_ROOM.1);
        };
        drop(input);
        let id = output::cell(&accepted["task_id"]);
        *at = Some(id.clone());
        lock(open).insert(id.clone());
        if !self.args.wait {
            return Ok(Row::open(file, &output::cell(&accepted["state"])));
        }
        let done = task::wait(self.client, &id, None);
        if done.is_ok() {
            lock(open).remove(&id);
        }
        let outputs = task::outputs(&done?)?;
        let found = task::find(self.classes, &outputs)?;
        let written = match &self.args.output_dir {
            Some(folder) => outputs::write_as(folder, prefix, &outputs)?,
            None => outputs::shown(&outputs),
        };
        Ok(Row::done(file, found, written))
    }
}

fn lock(open: &Open) -> MutexGuard<'_, BTreeSet<String>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
