//! The activity of a connection: its requests, and how their answers are taken.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// The activity of one connection, and its place among the open ones.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Requests without an answer, or whose answer is not taken yet.
    under_way: AtomicUsize,
    requests: Mutex<Vec<Weak<UnderWay>>>,
    /// When the last request ended, in milliseconds since the server began.
    pub(super) idle_since_ms: AtomicU64,
    pub(super) leave: Notify,
    pub(super) is_asked: AtomicBool,
    began: Instant,
    _place: Option<OwnedSemaphorePermit>,
}

impl Activity {
    /// An idle connection of a server that began then, with its place among the open ones.
    pub(super) fn new(began: Instant, place: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            requests: Mutex::default(),
            idle_since_ms: AtomicU64::new(millis(began)),
            leave: Notify::new(),
            is_asked: AtomicBool::new(false),
            began,
            _place: place,
        }
    }

    /// Registers a request. The connection is busy until the request ends.
    pub(crate) fn begin(self: &Arc<Self>) -> Arc<UnderWay> {
        let request = Arc::new(UnderWay::new(Arc::clone(self)));
        let mut all = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|request| request.strong_count() > 0);
        }
        all.push(Arc::downgrade(&request));
        request
    }

    /// Whether a client has taken nothing of an available answer for `limit`.
    pub(super) fn is_stalled(&self, limit: Duration) -> bool {
        let all = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).any(|request| request.is_stalled(limit))
    }

    /// Counts one more reason for the connection to be busy.
    fn add(&self) {
        self.under_way.fetch_add(1, Relaxed);
    }

    /// Removes one reason for the connection to be busy.
    fn remove(&self) {
        self.idle_since_ms.store(millis(self.began), Relaxed);
        self.under_way.fetch_sub(1, Relaxed);
    }

    /// Whether a request is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.load(Relaxed) > 0
    }

    /// Resolves when the connection must make room for another one.
    pub(crate) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// A request in progress on a connection.
#[derive(Debug)]
pub(crate) struct UnderWay {
    activity: Arc<Activity>,
    answer: Mutex<Answer>,
}

/// The progress of a request's answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// Whether more of the answer is available. The connection polls it once the client has taken enough.
    pub(super) is_there: bool,
    /// Pieces that the connection holds and the client has not taken.
    pub(super) pieces: usize,
    /// When the client last took something.
    taken: Instant,
    /// Whether the answer's body has ended.
    pub(super) is_whole: bool,
    /// Whether the request keeps its connection busy even when nothing of the answer is available.
    pub(super) keeps_busy: bool,
    /// Whether the request keeps its connection busy now.
    is_busy: bool,
}

impl Answer {
    fn is_due(&self) -> bool {
        self.is_there || self.pieces > 0
    }
}

impl UnderWay {
    fn new(activity: Arc<Activity>) -> Self {
        activity.add();
        let taken = Instant::now();
        let (keeps_busy, is_busy) = (true, true);
        let (is_there, is_whole) = (false, false);
        let answer = Answer { is_there, pieces: 0, taken, is_whole, keeps_busy, is_busy };
        Self { activity, answer: Mutex::new(answer) }
    }

    fn lock(&self) -> MutexGuard<'_, Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the connection polled for more or wrote a piece: the client takes its answer.
    pub(super) fn gets_on(&self, change: impl FnOnce(&mut Answer)) {
        let mut answer = self.lock();
        change(&mut answer);
        answer.taken = Instant::now();
        self.settle(&mut answer);
    }

    /// Notes that more of the answer is available. Starts the client's time unless it runs already.
    pub(super) fn has_more(&self) {
        let mut answer = self.lock();
        if !answer.is_due() {
            answer.taken = Instant::now();
        }
        answer.is_there = !answer.is_whole;
        self.settle(&mut answer);
    }

    fn settle(&self, answer: &mut Answer) {
        let is_busy = answer.keeps_busy || answer.is_due();
        if is_busy != answer.is_busy {
            answer.is_busy = is_busy;
            match is_busy {
                true => self.activity.add(),
                false => self.activity.remove(),
            }
        }
    }

    /// Registers a request on the same connection that is a part of this one.
    pub(crate) fn part(&self) -> Arc<Self> {
        self.activity.begin()
    }

    fn is_stalled(&self, limit: Duration) -> bool {
        let answer = self.lock();
        answer.is_due() && answer.taken.elapsed() >= limit
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.lock().is_busy {
            self.activity.remove();
        }
    }
}
