//! The environment of a simulated run for the network code on its threads, and the run's records.

use super::net::{Net, Node};
use super::threads;
use lgp_distributed::inside::outside::{self, Bound, GlueFault, set_scene};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

thread_local! {
    /// The run of this thread.
    static CURRENT: RefCell<Option<Arc<Scene>>> = const { RefCell::new(None) };
}

/// The wall clock at the beginning of every run.
const BEGAN_MS: u64 = 1_800_000_000_000;
/// Events that a failed run shows.
const TRACE_MAX: usize = 400;

/// A run.
pub(super) struct Scene {
    pub(super) seed: u64,
    pub(super) net: Arc<Net>,
    began: Instant,
    pub(super) fault: Option<GlueFault>,
    state: Mutex<State>,
}

struct State {
    rng: Xoshiro256PlusPlus,
    /// In how many of a thousand cases a thread starts late.
    late_threads: u32,
    /// The first failure.
    failure: Option<(Duration, String)>,
    trace: Vec<String>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// Until when machines are suspended.
    still: BTreeMap<Node, Instant>,
}

/// Makes the thread part of a run until it is dropped.
pub(super) struct Entered;

pub(super) fn enter(scene: &Arc<Scene>) -> Entered {
    notice_panics();
    CURRENT.set(Some(Arc::clone(scene)));
    set_scene(Some(Arc::clone(scene) as _));
    Entered
}

impl Drop for Entered {
    fn drop(&mut self) {
        set_scene(None);
        CURRENT.set(None);
    }
}

/// The message of planned panics.
pub(super) const PLANNED: &str = "planned";

/// A panic on a thread of a run fails the run, because the runtime catches panics of its tasks.
fn notice_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let scene = CURRENT.try_with(|scene| scene.try_borrow().ok()?.clone()).ok().flatten();
            let Some(scene) = scene else { return before(info) };
            if info.payload().downcast_ref::<&str>() == Some(&PLANNED) {
                return;
            }
            eprintln!("seed {}: {info}", scene.seed);
            scene.fail(format!("a panic: {info}"));
        }));
    });
}

impl Scene {
    /// Must be called within the run's runtime.
    pub(super) fn new(seed: u64, fault: Option<GlueFault>) -> Arc<Self> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let net = Net::new(rng.random());
        let late_threads = *[0, 0, 20, 100].get(rng.random_range(0..4_usize)).unwrap_or(&0);
        let state = State {
            rng,
            late_threads,
            failure: None,
            trace: Vec::new(),
            threads: Vec::new(),
            still: <_>::default(),
        };
        Arc::new(Self { seed, net, began: Instant::now(), fault, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the start of the run.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// A random generator that nobody else uses.
    pub(super) fn rng(&self) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::from_rng(&mut self.lock().rng)
    }

    /// Records the first broken invariant.
    pub(super) fn fail(&self, what: String) {
        let now = self.now();
        self.lock().failure.get_or_insert((now, what));
    }

    pub(super) fn failure(&self) -> Option<(Duration, String)> {
        self.lock().failure.clone()
    }

    /// Records an event, because a failed run may not fail again in the same way.
    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        let line = format!("{:>9.3} {}", self.now().as_secs_f64(), what());
        self.lock().trace.push(line);
    }

    pub(super) fn trace(&self) -> Vec<String> {
        let trace = std::mem::take(&mut self.lock().trace);
        let skipped = trace.len().saturating_sub(TRACE_MAX);
        trace.into_iter().skip(skipped).collect()
    }

    /// Suspends a machine for a while.
    pub(super) fn stop(&self, node: Node, time: Duration) {
        self.lock().still.insert(node, Instant::now() + time);
    }

    /// Ends all faults.
    pub(super) fn heal(&self) {
        let mut state = self.lock();
        state.late_threads = 0;
        state.still.clear();
        drop(state);
        self.net.heal();
    }

    /// Joins the threads, whose runtime is gone.
    pub(super) fn join(&self) {
        let threads = std::mem::take(&mut self.lock().threads);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl outside::Scene for Scene {
    fn bind(&self, addr: SocketAddr) -> io::Result<Bound> {
        self.net.bind(addr)
    }

    fn thread_is_late(&self) -> Option<Duration> {
        let state = &mut *self.lock();
        let late = state.rng.random_range(0..1_000) < state.late_threads;
        late.then(|| Duration::from_millis(state.rng.random_range(1..300)))
    }

    /// Each runs on its own thread in simulated time, and only one thread runs at a time.
    fn run_models(self: Arc<Self>, work: Box<dyn FnOnce() + Send>) {
        let scene = Arc::clone(&self);
        let (thread, handle) = threads::start(move || enter(&scene), work);
        self.lock().threads.push(handle);
        tokio::spawn(thread.drive());
    }

    fn unix_ms(&self) -> u64 {
        BEGAN_MS + u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX)
    }

    fn rng(&self) -> Xoshiro256PlusPlus {
        Self::rng(self)
    }

    fn stands_still(&self, machine: u8) -> Option<Instant> {
        let mut state = self.lock();
        let until = state.still.get(&machine).copied()?;
        if until <= Instant::now() {
            state.still.remove(&machine);
            return None;
        }
        Some(until)
    }

    fn is_planted(&self, fault: GlueFault) -> bool {
        self.fault == Some(fault)
    }
}
