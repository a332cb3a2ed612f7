//! Room for answers that their clients have not taken: all of them share one budget in bytes, and those that
//! wait for it another one of that size.

use crate::bodies::{Bodies, Room};
use crate::fault::Fault;
use axum::body::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The room that there is.
#[derive(Debug)]
pub(crate) struct Answers {
    room: Bodies,
    bytes: usize,
    /// How long one waits for its room.
    within: Duration,
    /// Bytes of answers that are there and have no room yet.
    waiting: Arc<AtomicUsize>,
    /// Answers that others keep from their room.
    kept_out: AtomicUsize,
}

/// An answer that waits, whose bytes count until it has room or is gone.
#[derive(Debug)]
pub(crate) struct Waiting {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

impl Answers {
    /// Room for `bytes` bytes together, each answer's waited for within a time.
    pub(crate) fn new(bytes: usize, within: Duration) -> Self {
        let (waiting, kept_out) = (Arc::default(), AtomicUsize::new(0));
        Self { room: Bodies::new(bytes), bytes, within, waiting, kept_out }
    }

    /// Whether answers wait until others are taken.
    pub(crate) fn is_short(&self) -> bool {
        self.kept_out.load(Relaxed) > 0
    }

    /// Lets an answer of so many bytes wait for its room.
    ///
    /// # Errors
    /// 503 where as much waits already as may; one that is larger than that waits alone.
    pub(crate) fn wait(&self, bytes: usize) -> Result<Waiting, Fault> {
        let before = self.waiting.fetch_add(bytes, Relaxed);
        let waiting = Waiting { all: Arc::clone(&self.waiting), bytes };
        match before > 0 && before.saturating_add(bytes) > self.bytes {
            true => Err(self.busy("no more may wait for that")),
            false => Ok(waiting),
        }
    }

    /// Room for an answer of this caller that begins to wait.
    ///
    /// # Errors
    /// Those of [`Answers::wait`] and [`Answers::room`].
    pub(crate) async fn room_for(&self, caller: &str, bytes: usize) -> Result<Room, Fault> {
        self.room(caller, self.wait(bytes)?).await
    }

    /// Room for an answer of this caller that waits.
    ///
    /// # Errors
    /// 503 where there is none in time.
    pub(crate) async fn room(&self, caller: &str, waiting: Waiting) -> Result<Room, Fault> {
        let mut room = self.room.room_of(caller);
        if self.room.try_grow(&mut room, waiting.bytes) {
            return Ok(room);
        }
        let _kept_out = KeptOut::new(&self.kept_out);
        let growing = self.room.grow(&mut room, waiting.bytes);
        let grown = tokio::time::timeout(self.within, growing).await;
        let ms = self.within.as_millis();
        grown.map_err(|_| self.busy(&format!("no room came free within {ms} ms")))?;
        Ok(room)
    }

    fn busy(&self, what: &str) -> Fault {
        let most = self.bytes;
        let message = format!(
            "answers of {most} bytes wait for their clients to take them, the most that are \
             (http.bodies_bytes_max sets that); {what}"
        );
        Fault::unavailable("busy", message)
    }
}

/// Bytes of answers, which have their room for as long as something of them is held.
struct Held<T> {
    bytes: T,
    _rooms: Vec<Room>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// The same bytes, with which these rooms are given back.
pub(crate) fn held(bytes: impl AsRef<[u8]> + Send + 'static, rooms: Vec<Room>) -> Bytes {
    Bytes::from_owner(Held { bytes, _rooms: rooms })
}

/// Counts as long as it lives.
struct KeptOut<'a>(&'a AtomicUsize);

impl<'a> KeptOut<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for KeptOut<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn as_much_may_wait_as_has_room_and_one_alone_always() {
        const MS: Duration = Duration::from_millis(20);
        let answers = Answers::new(8 << 20, MS);
        let waits = |bytes| answers.wait(bytes);
        let first = answers.room_for("a", 6 << 20).await.expect("room");
        let (one, other) = (waits(5 << 20).expect("alone"), waits(3 << 20).expect("so much may"));
        assert_eq!(waits(1).expect_err("it is too much").status.as_u16(), 503);
        assert!(!answers.is_short());
        let late = answers.room("a", one);
        tokio::pin!(late);
        assert!(futures_util::poll!(&mut late).is_pending() && answers.is_short());
        assert_eq!(late.await.expect_err("the first has it").status.as_u16(), 503);
        assert!(!answers.is_short());
        drop(other);
        // It is given back with the last of what it is for.
        let bytes = held(vec![1, 2], vec![first]);
        let rest = bytes.slice(1..);
        drop(bytes);
        assert!(answers.room_for("a", 6 << 20).await.is_err());
        drop(rest);
        let large = answers.room_for("a", 1 << 30).await;
        assert!(large.is_ok(), "{large:?}");
    }
}
