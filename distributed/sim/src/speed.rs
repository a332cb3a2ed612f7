//! Measures how many records a second become durable, and how long one takes.

use lgp_distributed::JournalError;
use lgp_distributed::inside::journal::Embedded;
use lgp_distributed::inside::log::{Change, Outcome, Place};
use lgp_distributed::inside::record::Record;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The result of a measurement.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JournalSpeed {
    /// Records that became durable.
    pub records: u64,
    /// The total time.
    pub elapsed: Duration,
    /// The time from submission to the answer of each record, sorted.
    pub latencies: Vec<Duration>,
}

/// Keeps `in_flight` records of `record_bytes` in flight in a new journal at `path` for `duration`.
/// Each task has two records, the second in place of the first; a finished task is removed after a
/// thousand later ones.
///
/// # Errors
/// Those of opening the journal and of submitting to it.
pub fn journal_speed(
    path: &Path,
    in_flight: usize,
    record_bytes: usize,
    duration: Duration,
) -> Result<JournalSpeed, JournalError> {
    let opened = Embedded(path.to_owned()).open(1.into(), &mut |_, _| Ok(()))?;
    let (outcomes, heard) = mpsc::channel();
    // The receiver outlives the log.
    let log = (opened.start)(Box::new(move |outcome| drop(outcomes.send(outcome))))?;
    let began = Instant::now();
    let mut under_way = VecDeque::new();
    let mut latencies = Vec::new();
    let mut ticket = 0_u64;
    let mut submit = |under_way: &mut VecDeque<(u64, Instant)>| {
        let now = Instant::now();
        let seq = 1 + ticket / 2;
        ticket += 1;
        let bytes = vec![ticket.to_le_bytes()[0]; record_bytes];
        log.submit(2 * ticket, Change::Put(Record { epoch: 1, seq, bytes }).into())?;
        under_way.push_back((2 * ticket, now));
        // One removal per task, with its second record.
        match seq.checked_sub(1_000) {
            Some(seq) if ticket.is_multiple_of(2) => {
                log.submit(2 * ticket + 1, Change::Remove { epoch: 1, seq }.into())
            }
            _ => Ok(()),
        }
    };
    for _ in 0..in_flight {
        submit(&mut under_way)?;
    }
    while let Ok(outcome) = heard.recv() {
        let durable = match outcome {
            Outcome::Durable(ticket) => ticket,
            Outcome::Failed { error, .. } => return Err(error),
        };
        let mut done = 0;
        while let Some((_, at)) = under_way.pop_front_if(|(ticket, _)| *ticket <= durable) {
            latencies.push(at.elapsed());
            done += 1;
        }
        if began.elapsed() < duration {
            for _ in 0..done {
                submit(&mut under_way)?;
            }
        } else if under_way.is_empty() {
            break;
        }
    }
    let elapsed = began.elapsed();
    latencies.sort_unstable();
    let records = u64::try_from(latencies.len()).unwrap_or(u64::MAX);
    Ok(JournalSpeed { records, elapsed, latencies })
}
