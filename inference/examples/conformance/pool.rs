//! Runs tests on a thread for each core. A test that panics fails with the panic's message; one
//! that takes too long fails and is left behind on its thread, which another replaces.

use crate::Test;
use crate::case;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long one test may take.
const LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked whether one takes longer.
const LOOK: Duration = Duration::from_millis(200);

enum Event {
    Started(usize),
    Finished(usize, String, Result<(), String>),
}

/// Runs all tests and calls `report` with each result, in the order in which they finish.
pub(crate) fn run(tests: Vec<Test>, mut report: impl FnMut(&Test, &str, Result<(), String>)) {
    let message = Arc::new(Mutex::new(HashMap::new()));
    let sink = Arc::clone(&message);
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(mut sink) = sink.lock() {
            sink.insert(std::thread::current().id(), info.to_string());
        }
    }));
    let tests = Arc::new(tests);
    let next = Arc::new(AtomicUsize::new(0));
    let (events, inbox) = channel();
    let start = || {
        let (tests, next) = (Arc::clone(&tests), Arc::clone(&next));
        let (events, message) = (events.clone(), Arc::clone(&message));
        std::thread::spawn(move || {
            work(&tests, &next, &events, || {
                let text = message.lock().ok()?.remove(&std::thread::current().id());
                text.map(|text: String| text.replace('\n', " "))
            });
        });
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (0..cores).for_each(|_| start());
    let mut running: HashMap<usize, Instant> = HashMap::new();
    let mut left = tests.len();
    while left > 0 {
        match inbox.recv_timeout(LOOK) {
            Ok(Event::Started(i)) => {
                running.insert(i, Instant::now());
            }
            Ok(Event::Finished(i, operators, outcome)) => {
                if running.remove(&i).is_some() {
                    left -= 1;
                    report(&tests[i], &operators, outcome);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let late = running.iter().find(|(_, since)| since.elapsed() > LIMIT).map(|(&i, _)| i);
        if let Some(i) = late {
            running.remove(&i);
            left -= 1;
            report(&tests[i], "", Err(format!("takes more than {} s", LIMIT.as_secs())));
            start();
        }
    }
}

fn work(
    tests: &[Test],
    next: &AtomicUsize,
    events: &Sender<Event>,
    panicked: impl Fn() -> Option<String>,
) {
    while let Some((i, test)) = take(tests, next) {
        if events.send(Event::Started(i)).is_err() {
            return;
        }
        let mut operators = String::new();
        let run = catch_unwind(AssertUnwindSafe(|| case::run(test, &mut operators)));
        let outcome = run.unwrap_or_else(|_| Err(panicked().unwrap_or_else(|| "panicked".into())));
        if events.send(Event::Finished(i, operators, outcome)).is_err() {
            return;
        }
    }
}

fn take<'a>(tests: &'a [Test], next: &AtomicUsize) -> Option<(usize, &'a Test)> {
    let i = next.fetch_add(1, Ordering::Relaxed);
    tests.get(i).map(|test| (i, test))
}
