//! Room for answers that clients have not taken yet. All of them share one budget in bytes; answers that wait for
//! room share another one of the same size.

use crate::bodies::{Bodies, Room};
use crate::fault::Fault;
use axum::body::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The room for answers.
#[derive(Debug)]
pub(crate) struct Answers {
    room: Bodies,
    bytes: usize,
    /// The longest wait for room.
    within: Duration,
    /// Bytes of answers that wait for room.
    waiting: Arc<AtomicUsize>,
    /// Answers that wait because others hold the room.
    kept_out: AtomicUsize,
}

/// An answer that waits for room; its bytes count until it is dropped.
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
    /// Room for `bytes` bytes in all, for which each answer waits at most `within`.
    pub(crate) fn new(bytes: usize, within: Duration) -> Self {
        let (waiting, kept_out) = (Arc::default(), AtomicUsize::new(0));
        Self { room: Bodies::new(bytes), bytes, within, waiting, kept_out }
    }

    /// Whether answers wait for others to be taken.
    pub(crate) fn is_short(&self) -> bool {
        self.kept_out.load(Relaxed) > 0
    }

    /// Registers an answer of `bytes` bytes that needs room.
    ///
    /// # Errors
    /// 503 if the waiting bytes would exceed the budget. A larger answer may wait alone.
    pub(crate) fn wait(&self, bytes: usize) -> Result<Waiting, Fault> {
        let before = self.waiting.fetch_add(bytes, Relaxed);
        let waiting = Waiting { all: Arc::clone(&self.waiting), bytes };
        match before > 0 && before.saturating_add(bytes) > self.bytes {
            true => Err(self.busy("no more may wait for that")),
            false => Ok(waiting),
        }
    }

    /// Registers an answer of this caller and waits for its room.
    ///
    /// # Errors
    /// Errors of [`Answers::wait`] and [`Answers::room`].
    pub(crate) async fn room_for(&self, caller: &str, bytes: usize) -> Result<Room, Fault> {
        self.room(caller, self.wait(bytes)?).await
    }

    /// Waits for the room of a registered answer of this caller.
    ///
    /// # Errors
    /// 503 if there is no room in time.
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

/// Bytes of answers, with the room that they hold until the last reference is dropped.
struct Held<T> {
    bytes: T,
    _rooms: Vec<Room>,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// The same bytes, which free these rooms when they are dropped.
pub(crate) fn held(bytes: impl AsRef<[u8]> + Send + 'static, rooms: Vec<Room>) -> Bytes {
    Bytes::from_owner(Held { bytes, _rooms: rooms })
}

/// Counts an answer that waits, for as long as the guard lives.
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
        // The room is freed with the last reference to its bytes.
        let bytes = held(vec![1, 2], vec![first]);
        let rest = bytes.slice(1..);
        drop(bytes);
        assert!(answers.room_for("a", 6 << 20).await.is_err());
        drop(rest);
        let large = answers.room_for("a", 1 << 30).await;
        assert!(large.is_ok(), "{large:?}");
    }
}
