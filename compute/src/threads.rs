//! The fork-join pool of a context. Its threads spin briefly between two pieces of work, because
//! most operators take less time than waking a thread.
//!
//! Work is cut into parts before it starts, so results depend on the number of threads only, not on
//! the thread that computes a part. A call that finds the pool busy, because another thread runs
//! the same session or because the call came from inside a part, computes on its own thread. A
//! burst of work that ends before a sleeping thread would be awake wakes no thread.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread spins for work, or for the end of work, before it sleeps.
const SPIN: Duration = Duration::from_micros(200);
/// The shortest burst of work that wakes threads: waking takes some tens of microseconds.
const WORTH_WAKING: Duration = Duration::from_micros(100);

/// The function that each part calls; its lifetime is erased while the parts run.
type Body = *const (dyn Fn(usize) + Sync);

/// A pool of `threads - 1` threads beside the caller's.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// The body of the current work and the number of its parts. The thread that holds `busy` writes
/// both before `ticket`, and threads that took a part of that ticket read them.
struct Job(std::cell::UnsafeCell<Option<(Body, u32)>>);

// SAFETY: reads and writes are ordered by `ticket` and `done`, see `Shared::part` and
// `Threads::run`; the body itself is `Sync`.
unsafe impl Sync for Job {}
// SAFETY: as above.
unsafe impl Send for Job {}

/// The side from which a thread takes parts. The caller takes the first ones and workers the last,
/// so that with two threads a core reads in one operator what it wrote in the one before.
#[derive(Clone, Copy)]
enum Side {
    First,
    Last,
}

struct Shared {
    /// Whether a call owns the pool.
    busy: AtomicBool,
    job: Job,
    /// The number of the work, the end of the parts not taken, and the first of them: 32, 16 and 16
    /// bits. They share a word, so that no thread takes a part of earlier work or a part twice.
    ticket: AtomicU64,
    /// Parts that have ended.
    done: AtomicU32,
    /// Workers that sleep or are about to sleep.
    asleep: AtomicUsize,
    /// Whether the caller sleeps or is about to sleep.
    waiting: AtomicBool,
    closing: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    lock: Mutex<()>,
    work: Condvar,
    end: Condvar,
    /// Only the caller locks the burst, so it never waits for the lock.
    burst: Mutex<Burst>,
}

/// Pieces of work without a pause in which threads would fall asleep, such as a model's run.
#[derive(Clone, Copy)]
struct Burst {
    began: Instant,
    ended: Instant,
    /// Whether the burst before was long enough to wake threads; this burst is expected to be
    /// alike.
    after_long: bool,
}

impl Burst {
    fn begin(now: Instant, after_long: bool) -> Self {
        Self { began: now, ended: now, after_long }
    }

    fn is_long(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= WORTH_WAKING
    }

    /// Whether the burst is, or is likely to be, long enough to wake threads.
    fn is_worth_waking(&self, now: Instant) -> bool {
        self.after_long || self.is_long(now)
    }

    /// The burst that work which begins now is part of.
    fn at(self, now: Instant) -> Self {
        match now.duration_since(self.ended) > SPIN {
            true => Self::begin(now, self.is_long(self.ended)),
            false => self,
        }
    }
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads").field("threads", &self.count()).finish()
    }
}

impl Threads {
    /// Starts the threads. Where the system refuses a thread, the pool has fewer.
    pub(crate) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            busy: AtomicBool::new(false),
            job: Job(std::cell::UnsafeCell::new(None)),
            ticket: AtomicU64::new(0),
            done: AtomicU32::new(0),
            asleep: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            panic: Mutex::new(None),
            lock: Mutex::new(()),
            work: Condvar::new(),
            end: Condvar::new(),
            // The first burst is expected to be long, because no burst came before.
            burst: Mutex::new(Burst::begin(Instant::now(), true)),
        });
        let start = |i| {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("compute-{i}"));
            builder.spawn(move || shared.serve()).ok()
        };
        let workers = (1..threads).map_while(start).collect();
        Self { shared, workers }
    }

    /// The number of threads, the caller's included.
    pub(crate) fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body` once with each number below `parts`, on this thread and on the pool's threads,
    /// and returns when all calls have ended. After that, this thread resumes the panic of a part.
    pub(crate) fn run(&self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        if parts <= 1 || self.workers.is_empty() {
            return (0..parts).for_each(body);
        }
        let Ok(count) = u16::try_from(parts) else {
            let group = parts.div_ceil(usize::from(u16::MAX));
            return self.run(parts.div_ceil(group), &|i| {
                (i * group..parts.min((i + 1) * group)).for_each(body);
            });
        };
        if shared.busy.swap(true, Ordering::Acquire) {
            return (0..parts).for_each(body);
        }
        // SAFETY: only the lifetime is changed. Only threads that took a part of this ticket use
        // the pointer, and this function does not return before every part has ended.
        let erased: Body = unsafe { std::mem::transmute(std::ptr::from_ref(body)) };
        // SAFETY: `busy` makes this thread the only writer, and all parts of the last ticket have
        // ended, so there is no reader.
        unsafe { *shared.job.0.get() = Some((erased, u32::from(count))) };
        shared.done.store(0, Ordering::Relaxed);
        let number = ((shared.ticket.load(Ordering::Relaxed) >> 32) + 1) & 0xffff_ffff;
        shared.ticket.store(number << 32 | u64::from(count) << 16, Ordering::SeqCst);
        // The caller's thread takes a part too, so one worker fewer is needed.
        let needed = shared.asleep.load(Ordering::SeqCst).min(parts - 1);
        let mut asleep = (needed > 0).then(|| shared.burst_now());
        loop {
            if asleep.is_some_and(|burst| burst.is_worth_waking(Instant::now())) {
                let _guard = shared.locked();
                (0..needed).for_each(|_| shared.work.notify_one());
                asleep = None;
            }
            if !shared.part(number, Side::First) {
                break;
            }
        }
        shared.wait_for(u32::from(count));
        shared.burst().ended = Instant::now();
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        shared.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        {
            let _guard = self.shared.locked();
            self.shared.work.notify_all();
        }
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its parts.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn burst(&self) -> MutexGuard<'_, Burst> {
        self.burst.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The burst that work which begins now is part of.
    fn burst_now(&self) -> Burst {
        let mut burst = self.burst();
        *burst = burst.at(Instant::now());
        *burst
    }

    /// Takes and runs one part of a ticket; `false` when none is left.
    fn part(&self, number: u64, side: Side) -> bool {
        let mut ticket = self.ticket.load(Ordering::Acquire);
        let part = loop {
            let (end, first) = (ticket >> 16 & 0xffff, ticket & 0xffff);
            if ticket >> 32 != number || first >= end {
                return false;
            }
            let (part, rest) = match side {
                Side::First => (first, ticket + 1),
                Side::Last => (end - 1, ticket - (1 << 16)),
            };
            let (taken, seen) = (Ordering::AcqRel, Ordering::Acquire);
            match self.ticket.compare_exchange_weak(ticket, rest, taken, seen) {
                Ok(_) => break part,
                Err(now) => ticket = now,
            }
        };
        // SAFETY: this thread holds a part of the current ticket, whose work does not end before
        // `done` counts the part: until then the body lives and no thread writes the job. A ticket
        // with parts has a job.
        let Some((body, parts)) = (unsafe { *self.job.0.get() }) else { return false };
        // SAFETY: as above.
        let body = unsafe { &*body };
        let part = usize::try_from(part).unwrap_or(0);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(part))) {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        let last = self.done.fetch_add(1, Ordering::SeqCst) + 1 == parts;
        if last && self.waiting.load(Ordering::SeqCst) {
            let _guard = self.locked();
            self.end.notify_all();
        }
        true
    }

    /// Waits until so many parts have ended.
    fn wait_for(&self, parts: u32) {
        let over = || self.done.load(Ordering::SeqCst) == parts;
        if spin_until(over) {
            return;
        }
        self.waiting.store(true, Ordering::SeqCst);
        let mut guard = self.locked();
        while !over() {
            guard = self.end.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        self.waiting.store(false, Ordering::SeqCst);
    }

    /// The loop of a worker: takes parts of each ticket until the pool closes.
    fn serve(&self) {
        let mut seen = 0;
        loop {
            let news = || {
                self.ticket.load(Ordering::SeqCst) >> 32 != seen
                    || self.closing.load(Ordering::SeqCst)
            };
            if !spin_until(news) {
                self.asleep.fetch_add(1, Ordering::SeqCst);
                let mut guard = self.locked();
                while !news() {
                    guard = self.work.wait(guard).unwrap_or_else(PoisonError::into_inner);
                }
                drop(guard);
                self.asleep.fetch_sub(1, Ordering::SeqCst);
            }
            if self.closing.load(Ordering::SeqCst) {
                return;
            }
            seen = self.ticket.load(Ordering::SeqCst) >> 32;
            while self.part(seen, Side::Last) {}
        }
    }
}

/// Polls `done` for [`SPIN`]; whether it became true.
fn spin_until(done: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..32 {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        let start = *start.get_or_insert_with(Instant::now);
        if start.elapsed() > SPIN {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part runs once, for any number of threads and parts.
    #[test]
    fn every_part_runs_once() {
        for threads in [1, 2, 3, 7] {
            let pool = Threads::new(threads);
            for parts in [0, 1, 2, 3, 64] {
                for _ in 0..200 {
                    let counts: Vec<AtomicU32> = (0..parts).map(|_| AtomicU32::new(0)).collect();
                    pool.run(parts, &|i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(counts.iter().all(|n| n.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn sleeping_threads_wake_up() {
        let pool = Threads::new(3);
        for _ in 0..20 {
            std::thread::sleep(SPIN * 3);
            let sum = AtomicUsize::new(0);
            pool.run(9, &|i| {
                std::thread::sleep(SPIN / 4);
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 36);
        }
    }

    #[test]
    fn sleeping_threads_wake_for_long_bursts_only() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let run = |burst: Burst, from: u64, until: u64| {
            let burst = burst.at(at(from));
            let woken = burst.is_worth_waking(at(from));
            (Burst { ended: at(until), ..burst }, woken)
        };
        // The first burst is expected to be long, and turns out to be short.
        let (burst, first) = run(Burst::begin(start, true), 0, 20);
        let (burst, second) = run(burst, 1_000, 1_020);
        // A burst that is longer than expected wakes threads before it ends.
        let (burst, long) = run(burst, 2_000, 2_090);
        let (burst, late) = run(burst, 2_110, 2_200);
        let (burst, like_it) = run(burst, 3_000, 3_020);
        let (_, short) = run(burst, 4_000, 4_020);
        let woken = [first, second, long, late, like_it, short];
        assert_eq!(woken, [true, false, false, true, true, false]);
    }

    /// Calls from several threads and from inside a part all do their work.
    #[test]
    fn a_busy_pool_is_no_obstacle() {
        let pool = Threads::new(3);
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        pool.run(4, &|_| {
                            pool.run(5, &|i| {
                                sum.fetch_add(i, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 100 * 4 * 10);
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_parts() {
        let pool = Threads::new(2);
        for at in 0..4 {
            let over = AtomicUsize::new(0);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(4, &|i| {
                    over.fetch_add(1, Ordering::Relaxed);
                    assert!(i != at, "part {at}");
                });
            }));
            let message = caught.expect_err("a part failed");
            assert_eq!(message.downcast_ref::<String>(), Some(&format!("part {at}")));
            assert_eq!(over.into_inner(), 4);
        }
        pool.run(2, &|_| {});
    }
}
