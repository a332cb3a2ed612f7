//! Drives the lanes, in turn with their answers or at a rate, and counts the results.

use super::answer::Answer;
use super::grpc::{self, Streamed, Unary};
use super::http::Http;
use super::lane::Lane;
use super::request::Input;
use super::{Load, LoadProtocol, Result};
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, mpsc};
use tokio::task::LocalSet;

/// The results of a load.
#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    /// Measured time, in seconds.
    pub seconds: f64,
    /// Successful requests.
    pub good: usize,
    /// Successful requests a second.
    pub per_s: f64,
    /// Latency of successful requests, from sending or, with a rate, from the due time.
    pub latency_us: LoadLatency,
    /// Latency beside the time in the model; `None` if the server does not report that time.
    pub over_model_us: Option<LoadLatency>,
    /// Mean time in the model, in microseconds.
    pub model_us: Option<f64>,
    /// Requests that the server refused for lack of room.
    pub refused: usize,
    /// Refusals that say when to retry.
    pub refused_saying_when: usize,
    /// Median time to a refusal, in microseconds.
    pub refused_us_p50: f64,
    /// Requests that were due but found no free lane before the end.
    pub unsent: usize,
    /// Failed requests, without refusals.
    pub bad: usize,
    /// The first failure.
    pub first_bad: Option<String>,
}

/// Times in microseconds.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct LoadLatency {
    pub least: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
    pub mean: f64,
}

impl LoadLatency {
    fn of(samples: &mut [f64]) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        let at = |per_mille: usize| rank(samples, per_mille);
        let mean = samples.iter().sum::<f64>() / samples.len().max(1) as f64;
        Self { least: at(0), p50: at(500), p95: at(950), p99: at(990), max: at(1000), mean }
    }
}

/// The nearest-rank quantile; 0 for no values.
fn rank(sorted: &[f64], per_mille: usize) -> f64 {
    let at = (sorted.len() * per_mille).div_ceil(1000).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

#[derive(Default)]
struct Count {
    good_us: Vec<f64>,
    over_model_us: Vec<f64>,
    model_us: f64,
    refused_us: Vec<f64>,
    refused_saying_when: usize,
    bad: usize,
    first_bad: Option<String>,
}

/// Decides when requests are due.
struct Clock {
    counted_from: Instant,
    end: Instant,
    /// The due times, if the load has a rate.
    due: Option<Mutex<mpsc::UnboundedReceiver<Instant>>>,
    /// Requests that were due but found no lane before the end.
    unsent: Cell<usize>,
}

impl Clock {
    fn new(begin: Instant, run: &Load) -> Self {
        let counted_from = begin + Duration::from_secs_f64(run.warm_seconds);
        let end = counted_from + Duration::from_secs_f64(run.seconds);
        let due = run.rate.map(|rate| {
            let (sender, due) = mpsc::unbounded_channel();
            let pause = Duration::from_secs_f64(1.0 / rate);
            // Tokio's timers are late by about 1 ms, the system's by about 50 us.
            std::thread::spawn(move || pace(&sender, begin, pause, end));
            Mutex::new(due)
        });
        Self { counted_from, end, due, unsent: Cell::new(0) }
    }

    /// The start of the next request's latency; `None` after the end. With a rate it is the due time, so that
    /// delays by a busy lane, a timer or this program count, as the sender would have waited for them.
    ///
    /// A lane that has sent no counted request sends one after the end too, so that a first answer that outlasts
    /// the whole time, as that of a worker that still starts does, does not leave the load without a result.
    async fn next(&self, has_counted: bool) -> Option<Instant> {
        let from = match &self.due {
            None => Instant::now(),
            Some(due) => due.lock().await.recv().await?,
        };
        let is_first = !has_counted && from >= self.counted_from;
        if is_first || Instant::now() < self.end {
            return Some(from);
        }
        // Without a rate, no request was due.
        self.unsent.set(self.unsent.get() + usize::from(self.due.is_some()));
        None
    }

    /// Requests that were due and never sent, once all lanes have ended.
    fn unsent(&self) -> usize {
        let mut due = self.due.as_ref().and_then(|due| due.try_lock().ok());
        let left = std::iter::from_fn(|| due.as_mut()?.try_recv().ok()).count();
        self.unsent.get() + left
    }
}

/// Sends each due time when it comes.
fn pace(due: &mpsc::UnboundedSender<Instant>, begin: Instant, pause: Duration, end: Instant) {
    for turn in 0.. {
        let at = begin + pause * turn;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        if at >= end || due.send(at).is_err() {
            return;
        }
    }
}

/// Opens the lanes, sends the requests and counts the answers.
pub(crate) async fn run(run: &Load) -> Result<LoadReport> {
    let lanes = open(run).await?;
    let clock = Rc::new(Clock::new(Instant::now(), run));
    let counted_from = clock.counted_from;
    let count = Rc::new(RefCell::new(Count::default()));
    let local = LocalSet::new();
    for lane in lanes {
        local.spawn_local(travel(lane, Rc::clone(&clock), Rc::clone(&count)));
    }
    local.await;
    let seconds = counted_from.elapsed().as_secs_f64();
    let mut count = count.take();
    count.refused_us.sort_unstable_by(f64::total_cmp);
    let told = count.over_model_us.len();
    Ok(LoadReport {
        seconds,
        good: count.good_us.len(),
        per_s: count.good_us.len() as f64 / seconds,
        latency_us: LoadLatency::of(&mut count.good_us),
        over_model_us: (told > 0).then(|| LoadLatency::of(&mut count.over_model_us)),
        model_us: (told > 0).then(|| count.model_us / told as f64),
        refused: count.refused_us.len(),
        refused_saying_when: count.refused_saying_when,
        refused_us_p50: rank(&count.refused_us, 500),
        unsent: clock.unsent(),
        bad: count.bad,
        first_bad: count.first_bad,
    })
}

async fn open(run: &Load) -> Result<Vec<Lane>> {
    let input = Input::parse(&run.input)?;
    let mut lanes = Vec::with_capacity(run.in_flight);
    match run.protocol {
        LoadProtocol::Http => {
            for lane in 0..run.in_flight {
                lanes.push(Lane::Http(Http::open(run, &input, lane).await?));
            }
        }
        LoadProtocol::Grpc => {
            let client = grpc::connect(run).await?;
            for _ in 0..run.in_flight {
                let lane = Unary::new(run, client.clone(), &input)?;
                lanes.push(Lane::Unary(Box::new(lane)));
            }
        }
        LoadProtocol::Stream => {
            let stream = Streamed::open(run, grpc::connect(run).await?, &input).await?;
            lanes.extend((0..run.in_flight).map(|_| Lane::Streamed(stream.clone())));
        }
    }
    Ok(lanes)
}

/// Sends one lane's requests until the end, or until its connection fails.
async fn travel(mut lane: Lane, clock: Rc<Clock>, count: Rc<RefCell<Count>>) {
    let mut has_counted = false;
    while let Some(from) = clock.next(has_counted).await {
        let answer = lane.ask().await;
        let us = from.elapsed().as_secs_f64() * 1e6;
        let is_counted = from >= clock.counted_from;
        has_counted |= is_counted;
        let mut count = count.borrow_mut();
        let bad = match answer {
            Ok(Answer::Good { .. } | Answer::Refused { .. }) if !is_counted => continue,
            Ok(Answer::Good { model_us }) => {
                count.good_us.push(us);
                if let Some(model_us) = model_us {
                    count.over_model_us.push(us - model_us);
                    count.model_us += model_us;
                }
                continue;
            }
            Ok(Answer::Refused { says_when }) => {
                count.refused_us.push(us);
                count.refused_saying_when += usize::from(says_when);
                continue;
            }
            Ok(Answer::Bad(message)) => (message, false),
            Err(error) => (error.to_string(), true),
        };
        // Failures count during the warm-up too: they are faults, not measurements.
        count.bad += 1;
        count.first_bad.get_or_insert(bad.0);
        if bad.1 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_counts_from_when_it_was_due() {
        let begin = Instant::now();
        let (counted_from, end) = (begin, begin + Duration::from_secs(60));
        let (sender, due) = mpsc::unbounded_channel();
        let unsent = Cell::new(0);
        let clock = Clock { counted_from, end, due: Some(Mutex::new(due)), unsent };
        for turn in 0..3 {
            sender.send(begin + Duration::from_millis(turn)).unwrap();
        }
        drop(sender);
        // The reader comes late.
        std::thread::sleep(Duration::from_millis(20));
        for turn in 0..3 {
            let from = Some(begin + Duration::from_millis(turn));
            assert_eq!(clock.next(true).await, from);
        }
        assert_eq!((clock.next(true).await, clock.unsent()), (None, 0));
    }

    #[tokio::test]
    async fn what_is_never_sent_is_told() {
        let begin = Instant::now();
        let (sender, due) = mpsc::unbounded_channel();
        let (due, unsent) = (Some(Mutex::new(due)), Cell::new(0));
        let clock = Clock { counted_from: begin, end: begin, due, unsent };
        for _ in 0..3 {
            sender.send(begin).unwrap();
        }
        // The first request is late, the others are never received.
        assert_eq!(clock.next(true).await, None);
        assert_eq!(clock.unsent(), 3);
    }

    #[tokio::test]
    async fn a_lane_without_a_result_sends_one_request_after_the_end() {
        let begin = Instant::now();
        let ended = |due| Clock { counted_from: begin, end: begin, due, unsent: Cell::new(0) };
        let in_turn = ended(None);
        assert!(in_turn.next(false).await.is_some());
        assert_eq!((in_turn.next(true).await, in_turn.unsent()), (None, 0));
        let (sender, due) = mpsc::unbounded_channel();
        let at_a_rate = ended(Some(Mutex::new(due)));
        sender.send(begin).unwrap();
        sender.send(begin).unwrap();
        assert_eq!(at_a_rate.next(false).await, Some(begin));
        assert_eq!((at_a_rate.next(true).await, at_a_rate.unsent()), (None, 1));
    }

    #[test]
    fn no_moment_is_left_out_or_comes_early() {
        let begin = Instant::now();
        let (sender, mut due) = mpsc::unbounded_channel();
        let pause = Duration::from_millis(2);
        pace(&sender, begin, pause, begin + 5 * pause);
        drop(sender);
        assert!(begin.elapsed() >= 4 * pause);
        for turn in 0..5 {
            assert_eq!(due.try_recv().ok(), Some(begin + pause * turn));
        }
        assert!(due.try_recv().is_err());
    }
}
