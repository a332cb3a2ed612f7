//! Room at the journal: the bytes that wait to be written are bounded, and a submission that finds
//! no room waits for it a while, first come first served.

use crate::error::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Most bytes that wait or are under way. A larger submission waits until it is alone.
const PENDING_BYTES_MAX: usize = 64 << 20;
/// How long a submission waits for room.
const PATIENCE: Duration = Duration::from_secs(5);
/// The unit of room, in bytes.
const UNIT_BYTES: usize = 1 << 10;
/// Bounds of the time after which a refused submission may come again.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The same where no rate is known yet.
const RETRY_UNKNOWN: Duration = Duration::from_secs(1);
/// Time over which one sample of the rate is taken.
const SAMPLE: Duration = Duration::from_millis(100);

/// The room, and how fast it becomes free.
pub(crate) struct Backlog {
    room: Arc<Semaphore>,
    units: u32,
    patience: Duration,
    meter: Mutex<Meter>,
}

#[derive(Default)]
struct Meter {
    /// Bytes whose room was given or is waited for.
    pending_bytes: usize,
    /// Bytes of the present sample; `since` is when there was something to write.
    written_bytes: usize,
    since: Option<Instant>,
    bytes_per_s: Option<f64>,
}

/// Bytes that count as pending as long as this lives.
struct Pending {
    backlog: Arc<Backlog>,
    bytes: usize,
}

/// Room for the bytes of a submission.
pub(crate) struct Room {
    pending: Pending,
    _permit: OwnedSemaphorePermit,
}

impl Room {
    /// The bytes are durable.
    pub(crate) fn written(self) {
        self.pending.backlog.lock().count(self.pending.bytes, Instant::now());
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut meter = self.backlog.lock();
        meter.pending_bytes = meter.pending_bytes.saturating_sub(self.bytes);
        if meter.pending_bytes == 0 {
            // Time without anything to write says nothing about the rate.
            (meter.since, meter.written_bytes) = (None, 0);
        }
    }
}

impl Default for Backlog {
    fn default() -> Self {
        Self::new(PENDING_BYTES_MAX, PATIENCE)
    }
}

impl Backlog {
    fn new(bytes_max: usize, patience: Duration) -> Self {
        let units = units(bytes_max);
        let permits = usize::try_from(units).unwrap_or(Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(permits)), units, patience, meter: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room. A submission larger than all room gets all of it.
    ///
    /// # Errors
    /// [`Error::Backlog`] when no room comes in time.
    pub(crate) async fn reserve(self: &Arc<Self>, bytes: usize) -> Result<Room> {
        let pending = self.pend(bytes);
        let units = units(bytes).min(self.units);
        // Most find room at once, which takes no timer. While others wait, no room is free.
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(units) {
            return Ok(Room { pending, _permit: permit });
        }
        let acquiring = Arc::clone(&self.room).acquire_many_owned(units);
        match tokio::time::timeout(self.patience, acquiring).await {
            Ok(Ok(permit)) => Ok(Room { pending, _permit: permit }),
            // The semaphore is never closed.
            Ok(Err(_)) => Err(Error::Stopped),
            Err(_) => {
                drop(pending);
                Err(self.lock().refusal())
            }
        }
    }

    fn pend(self: &Arc<Self>, bytes: usize) -> Pending {
        let mut meter = self.lock();
        meter.pending_bytes = meter.pending_bytes.saturating_add(bytes);
        meter.since.get_or_insert_with(Instant::now);
        Pending { backlog: Arc::clone(self), bytes }
    }
}

impl Meter {
    fn count(&mut self, bytes: usize, now: Instant) {
        self.written_bytes = self.written_bytes.saturating_add(bytes);
        let since = self.since.unwrap_or(now);
        let took = now.saturating_duration_since(since).max(Duration::from_millis(1));
        if took >= SAMPLE || self.pending_bytes == bytes {
            let sample = f64::from(units(self.written_bytes)) / took.as_secs_f64();
            // The last few samples count: disks slow down and recover.
            let rate = self.bytes_per_s.map_or(sample, |rate| 0.7 * rate + 0.3 * sample);
            self.bytes_per_s = Some(rate);
            (self.written_bytes, self.since) = (0, Some(now));
        }
    }

    /// The error that says how much waits, and when that will be written.
    fn refusal(&self) -> Error {
        let pending_bytes = self.pending_bytes;
        let seconds = self.bytes_per_s.map(|rate| f64::from(units(pending_bytes)) / rate.max(1e-3));
        let retry_after = seconds.map_or(RETRY_UNKNOWN, |seconds| {
            Duration::from_secs_f64(seconds.min(RETRY_MAX.as_secs_f64()))
        });
        Error::Backlog { pending_bytes, retry_after: retry_after.clamp(RETRY_MIN, RETRY_MAX) }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog(patience_ms: u64) -> Arc<Backlog> {
        Arc::new(Backlog::new(100 << 10, Duration::from_millis(patience_ms)))
    }

    #[tokio::test]
    async fn room_is_given_in_the_order_of_coming_and_all_of_it_to_what_is_larger() {
        let backlog = backlog(10_000);
        let first = backlog.reserve(60 << 10).await.expect("room");
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        for bytes in [900 << 10, 10 << 10, 1] {
            let (backlog, told) = (Arc::clone(&backlog), told.clone());
            tokio::spawn(async move {
                let room = backlog.reserve(bytes).await.expect("in time");
                told.send((bytes, backlog.room.available_permits())).expect("heard");
                room.written();
            });
            tokio::task::yield_now().await;
        }
        assert!(order.try_recv().is_err(), "the small ones do not overtake the large one");
        first.written();
        assert_eq!(order.recv().await, Some((900 << 10, 0)));
        assert_eq!(order.recv().await.map(|(bytes, _)| bytes), Some(10 << 10));
        assert_eq!(order.recv().await.map(|(bytes, _)| bytes), Some(1));
        drop(backlog.reserve(100 << 10).await.expect("all of it is free again"));
    }

    #[tokio::test]
    async fn who_waits_in_vain_is_told_when_to_come_again() {
        let backlog = backlog(10);
        let room = backlog.reserve(80 << 10).await.expect("room");
        let refused = backlog.reserve(30 << 10).await.err().expect("full");
        let Error::Backlog { pending_bytes, retry_after } = refused else { panic!("{refused}") };
        assert_eq!((pending_bytes, retry_after), (80 << 10, RETRY_UNKNOWN));
        // A caller that goes away while it waits leaves nothing pending.
        let gone = tokio::time::timeout(Duration::from_millis(1), backlog.reserve(90 << 10)).await;
        assert!(gone.is_err());
        assert_eq!(backlog.lock().pending_bytes, 80 << 10);
        drop(room);
        assert_eq!(backlog.lock().pending_bytes, 0);
    }

    #[test]
    fn the_time_to_come_again_follows_the_measured_rate_within_bounds() {
        let start = Instant::now();
        let mut meter = Meter { since: Some(start), ..Meter::default() };
        meter.pending_bytes = 100 << 20;
        meter.count(10 << 20, start + Duration::from_secs(1));
        let told = |meter: &Meter| match meter.refusal() {
            Error::Backlog { retry_after, .. } => retry_after,
            other => panic!("{other}"),
        };
        assert_eq!(told(&meter), Duration::from_secs(10), "100 MiB at 10 MiB/s");
        meter.pending_bytes = 10 << 30;
        assert_eq!(told(&meter), RETRY_MAX);
        meter.pending_bytes = 1;
        assert_eq!(told(&meter), RETRY_MIN);
        // Less than a sample is put together with what follows.
        meter.pending_bytes = 100 << 20;
        let rate = meter.bytes_per_s;
        meter.count(1, start + Duration::from_millis(1_010));
        assert_eq!(meter.bytes_per_s, rate);
    }
}
