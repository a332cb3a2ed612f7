//! A simulated network of UDP sockets: datagrams are lost, late or doubled, and directions are
//! blocked.

mod socket;

use lgp_distributed::inside::outside::Bound;
pub(super) use lgp_distributed::inside::outside::MACHINE as NODE;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use socket::{SimRuntime, SimSocket};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A machine of the coordinator, a worker or a caller.
pub(super) type Node = u8;

/// The quality of the links, in thousandths of the datagrams.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weather {
    pub(super) lost: u32,
    pub(super) doubled: u32,
    pub(super) late: u32,
    /// The longest delay of late datagrams.
    pub(super) late_ms_max: u64,
}

/// Counts of datagrams by fate.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) late: u64,
    pub(super) blocked: u64,
}

pub(super) struct Net {
    state: Mutex<State>,
    posted: Notify,
}

struct State {
    seed: u64,
    weather: Weather,
    sockets: BTreeMap<SocketAddr, Weak<SimSocket>>,
    /// Each direction has its own random numbers, so that its datagrams change nothing elsewhere.
    chances: BTreeMap<(Node, Node), Xoshiro256PlusPlus>,
    /// Until when a direction is blocked, or the datagrams to a machine are held.
    blocked: BTreeMap<(Node, Node), Instant>,
    held: BTreeMap<Node, Instant>,
    flying: BinaryHeap<Reverse<Flight>>,
    flights: u64,
    ports: u16,
    counts: Counts,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Instant,
    number: u64,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

fn node(addr: SocketAddr) -> Node {
    match addr {
        SocketAddr::V4(addr) => addr.ip().octets()[3],
        SocketAddr::V6(_) => 0,
    }
}

/// An address of a machine.
pub(super) fn address(node: Node, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, node), port))
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}

impl Net {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        let state = State {
            seed,
            weather: Weather::default(),
            sockets: BTreeMap::new(),
            chances: BTreeMap::new(),
            blocked: BTreeMap::new(),
            held: BTreeMap::new(),
            flying: BinaryHeap::new(),
            flights: 0,
            ports: 10_000,
            counts: Counts::default(),
        };
        Arc::new(Self { state: Mutex::new(state), posted: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Binds a socket on the machine of the calling task.
    pub(super) fn bind(self: &Arc<Self>, addr: SocketAddr) -> io::Result<Bound> {
        let mut state = self.lock();
        let addr = match addr.port() {
            0 => {
                state.ports += 1;
                let node = NODE.try_with(|node| *node).map_err(io::Error::other)?;
                address(node, state.ports)
            }
            _ => addr,
        };
        if state.sockets.get(&addr).is_some_and(|socket| socket.strong_count() > 0) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let inbox = Mutex::default();
        let socket = Arc::new(SimSocket { net: Arc::clone(self), addr, inbox });
        state.sockets.insert(addr, Arc::downgrade(&socket));
        Ok((socket, Arc::new(SimRuntime { node: node(addr) })))
    }

    pub(super) fn set(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// Blocks one direction between two machines for a while.
    pub(super) fn block(&self, from: Node, to: Node, time: Duration) {
        self.lock().blocked.insert((from, to), Instant::now() + time);
    }

    /// Holds the datagrams to a machine, which then arrive together.
    pub(super) fn hold(&self, to: Node, time: Duration) {
        self.lock().held.insert(to, Instant::now() + time);
    }

    /// Blocks both directions between two machines for a while.
    pub(super) fn part(&self, one: Node, other: Node, time: Duration) {
        self.block(one, other, time);
        self.block(other, one, time);
    }

    /// Closes the sockets of a machine silently: their holders send and receive nothing more.
    pub(super) fn cut(&self, gone: Node) {
        let mut state = self.lock();
        let sockets: Vec<_> = state.sockets.extract_if(.., |addr, _| node(*addr) == gone).collect();
        drop(state);
        for socket in sockets.into_iter().filter_map(|(_, socket)| socket.upgrade()) {
            socket.inbox().dead = true;
        }
    }

    pub(super) fn heal(&self) {
        let mut state = self.lock();
        state.weather = Weather::default();
        state.blocked.clear();
        state.held.clear();
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// The number of open sockets.
    pub(super) fn sockets(&self) -> usize {
        self.lock().sockets.values().filter(|socket| socket.strong_count() > 0).count()
    }

    /// Delivers datagrams. Never ends.
    pub(super) async fn carry(self: Arc<Self>) {
        loop {
            let posted = self.posted.notified();
            let next = self.lock().flying.peek().map(|Reverse(flight)| flight.at);
            match next {
                None => posted.await,
                Some(at) if at <= Instant::now() => self.deliver(),
                Some(at) => tokio::select! {
                    biased;
                    () = posted => {}
                    () = tokio::time::sleep_until(at) => {}
                },
            }
        }
    }

    fn deliver(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        let mut there = Vec::new();
        while state.flying.peek().is_some_and(|Reverse(flight)| flight.at <= now) {
            let Some(Reverse(flight)) = state.flying.pop() else { break };
            if let Some(socket) = state.sockets.get(&flight.to).and_then(Weak::upgrade) {
                there.push((socket, flight));
            }
        }
        drop(state);
        for (socket, flight) in there {
            let mut inbox = socket.inbox();
            inbox.datagrams.push_back((flight.from, flight.bytes));
            if let Some(waker) = inbox.waker.take() {
                waker.wake();
            }
        }
    }

    fn post(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let now = Instant::now();
        let state = &mut *self.lock();
        state.counts.sent += 1;
        let link = (node(from), node(to));
        let weather = state.weather;
        let seed = state.seed ^ u64::from(link.0) << 8 ^ u64::from(link.1);
        let chance = state.chances.entry(link);
        let chance = chance.or_insert_with(|| Xoshiro256PlusPlus::seed_from_u64(seed));
        // The draws are made for each datagram, whatever its fate.
        let draws: [u32; 3] = std::array::from_fn(|_| chance.random_range(0..1_000));
        let delays: [u64; 2] = std::array::from_fn(|_| chance.random_range(1..=3));
        let late_ms = chance.random_range(1..=weather.late_ms_max.max(1));
        if state.blocked.get(&link).is_some_and(|until| now < *until) {
            state.counts.blocked += 1;
            return;
        }
        let [lost, doubled, late] = draws;
        if lost < weather.lost {
            state.counts.lost += 1;
            return;
        }
        let copies = if doubled < weather.doubled { 2 } else { 1 };
        state.counts.doubled += u64::from(copies == 2);
        let late_ms = if late < weather.late { late_ms } else { 0 };
        state.counts.late += u64::from(late_ms > 0);
        let held = state.held.get(&link.1).copied().unwrap_or(now);
        for delay in delays.into_iter().take(copies) {
            let at = held.max(now + Duration::from_millis(delay + late_ms));
            state.flights += 1;
            let (number, bytes) = (state.flights, bytes.to_vec());
            state.flying.push(Reverse(Flight { at, number, from, to, bytes }));
        }
        self.posted.notify_one();
    }
}
