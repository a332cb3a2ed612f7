//! Measures how many records a second a log makes durable for waiting callers, and in how many
//! commits.

use lgp_distributed::JournalError;
use lgp_distributed::inside::log::{Change, Outcome, Place};
use lgp_distributed::inside::record::Record;
use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The load on a log.
#[derive(Debug, Clone, Copy)]
pub struct LogLoad {
    /// Callers, each with one record in flight.
    pub callers: usize,
    /// Bytes of each record.
    pub record_bytes: usize,
    /// How long callers continue.
    pub duration: Duration,
}

/// The result of a measurement.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LogSpeed {
    /// Commits that made the records durable.
    pub commits: u64,
    /// The total time.
    pub elapsed: Duration,
    /// The time from submission to the answer of each record, sorted.
    pub latencies: Vec<Duration>,
}

/// A record in flight.
struct Asked {
    ticket: u64,
    seq: u64,
    is_end: bool,
    at: Instant,
}

/// Callers put two records per task, the second in place of the first once that is durable, like a
/// coordinator when a task is accepted and when it ends.
///
/// # Errors
/// Those of opening the log and of submitting to it.
pub fn log_speed(place: &dyn Place, load: LogLoad) -> Result<LogSpeed, JournalError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let lead = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let opened = place.open(lead.into(), &mut |_, _| Ok(()))?;
    let (epoch, (outcomes, heard)) = (opened.epoch, mpsc::channel());
    let log = (opened.start)(Box::new(move |outcome| drop(outcomes.send(outcome))))?;
    let mut ticket = 0;
    let mut submit = |under_way: &mut VecDeque<Asked>, (seq, is_end): (u64, bool)| {
        ticket += 1;
        under_way.push_back(Asked { ticket, seq, is_end, at: Instant::now() });
        let bytes = vec![7; load.record_bytes];
        log.submit(ticket, Change::Put(Record { epoch, seq, bytes }).into())
    };
    let began = Instant::now();
    let (mut under_way, mut latencies, mut commits, mut seq) = (VecDeque::new(), vec![], 0, 0);
    for _ in 0..load.callers {
        seq += 1;
        submit(&mut under_way, (seq, false))?;
    }
    while !under_way.is_empty() {
        let durable = match heard.recv() {
            Ok(Outcome::Durable(ticket)) => ticket,
            Ok(Outcome::Failed { error, .. }) => return Err(error),
            // The log is alive here, so the channel cannot be closed.
            Err(_) => break,
        };
        commits += 1;
        let goes_on = began.elapsed() < load.duration;
        let mut done = Vec::new();
        while let Some(asked) = under_way.pop_front_if(|asked| asked.ticket <= durable) {
            latencies.push(asked.at.elapsed());
            done.push(asked);
        }
        for asked in done.into_iter().filter(|_| goes_on) {
            let next = match asked.is_end {
                false => (asked.seq, true),
                true => {
                    seq += 1;
                    (seq, false)
                }
            };
            submit(&mut under_way, next)?;
        }
    }
    let elapsed = began.elapsed();
    latencies.sort_unstable();
    Ok(LogSpeed { commits, elapsed, latencies })
}
