//! A simulated bad network: a UDP relay in front of a coordinator that loses, delays, reorders,
//! doubles and cuts datagrams, by a seed. It uses only the standard library, so that
//! `cargo xtask chaos` can use this file for real processes.

use std::collections::{BinaryHeap, HashMap};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread blocks before it checks whether the relay has ended.
const LOOK: Duration = Duration::from_millis(50);
/// The extra delay of a datagram that should be overtaken.
const OVERTAKEN: Duration = Duration::from_millis(15);
/// The largest possible datagram.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// A seeded random generator: SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }

    /// True in `per_mille` of 1000 cases.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// A relay's treatment of datagrams, equal in both directions unless stated.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    /// Lost datagrams of 1000.
    pub(crate) lost_per_mille: u64,
    /// Doubled datagrams of 1000.
    pub(crate) doubled_per_mille: u64,
    /// Datagrams of 1000 that later ones overtake.
    pub(crate) overtaken_per_mille: u64,
    /// The least delay of each datagram.
    pub(crate) delay: Duration,
    /// The most that is added to the delay, at random for each datagram.
    pub(crate) jitter: Duration,
    /// Nothing reaches the coordinator.
    pub(crate) cut_forth: bool,
    /// Nothing comes back from the coordinator.
    pub(crate) cut_back: bool,
}

impl Weather {
    /// Nothing passes in either direction.
    pub(crate) const CUT: Self = Self { cut_forth: true, cut_back: true, ..Self::CALM };
    /// Everything passes at once.
    pub(crate) const CALM: Self = Self {
        lost_per_mille: 0,
        doubled_per_mille: 0,
        overtaken_per_mille: 0,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        cut_forth: false,
        cut_back: false,
    };
}

/// Counts of datagrams by fate, over both directions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) overtaken: u64,
    pub(crate) cut: u64,
}

/// A relay between the senders to [`Relay::addr`] and one address. Dropping it ends it.
pub(crate) struct Relay {
    addr: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// The socket that peers send to, and from which they get answers.
    front: Arc<UdpSocket>,
    to: SocketAddr,
    weather: Mutex<Weather>,
    counts: Mutex<Counts>,
    /// The random numbers of each direction.
    forth: Mutex<Random>,
    back: Mutex<Random>,
    under_way: Mutex<UnderWay>,
    changed: Condvar,
    ended: AtomicBool,
}

#[derive(Default)]
struct UnderWay {
    letters: BinaryHeap<Letter>,
    /// Counts letters, so that letters due at the same time keep their order.
    number: u64,
}

/// A datagram that waits until it is due.
struct Letter {
    due: Instant,
    number: u64,
    through: Arc<UdpSocket>,
    /// `None` if the socket has only one peer.
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
}

impl Relay {
    /// A relay to `to`, on a free port of this machine, without faults.
    pub(crate) fn start(to: SocketAddr, seed: u64) -> std::io::Result<Self> {
        let front = socket()?;
        let addr = front.local_addr()?;
        let shared = Arc::new(Shared {
            front: Arc::new(front),
            to,
            weather: Mutex::new(Weather::CALM),
            counts: Mutex::default(),
            forth: Mutex::new(Random::new(seed)),
            back: Mutex::new(Random::new(!seed)),
            under_way: Mutex::default(),
            changed: Condvar::new(),
            ended: AtomicBool::new(false),
        });
        let (receiving, posting) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            std::thread::spawn(move || receiving.receive()),
            std::thread::spawn(move || posting.post()),
        ];
        Ok(Self { addr, shared, threads })
    }

    /// The address to use instead of the coordinator's.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the treatment of later datagrams.
    pub(crate) fn set(&self, weather: Weather) {
        *lock(&self.shared.weather) = weather;
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        *lock(&self.shared.counts)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // The panic was already reported.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Receives from peers. Each peer has its own socket, through which answers return.
    fn receive(self: Arc<Self>) {
        let mut peers: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let mut threads = Vec::new();
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while !self.ended() {
            let Ok((length, peer)) = self.front.recv_from(&mut buffer) else { continue };
            let through = match peers.get(&peer) {
                Some(through) => Arc::clone(through),
                None => {
                    let Ok(through) = self.door() else { continue };
                    let through = Arc::new(through);
                    peers.insert(peer, Arc::clone(&through));
                    let (shared, own) = (Arc::clone(&self), Arc::clone(&through));
                    threads.push(std::thread::spawn(move || shared.answer(&own, peer)));
                    through
                }
            };
            let bytes = buffer.get(..length).unwrap_or_default();
            self.take(&self.forth, |weather| weather.cut_forth, &through, None, bytes);
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn door(&self) -> std::io::Result<UdpSocket> {
        let door = socket()?;
        door.connect(self.to)?;
        Ok(door)
    }

    /// Receives the answers for one peer.
    fn answer(&self, through: &UdpSocket, peer: SocketAddr) {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        while !self.ended() {
            // An error is a timeout, or means that nobody listens there now.
            let Ok(length) = through.recv(&mut buffer) else { continue };
            let bytes = buffer.get(..length).unwrap_or_default();
            self.take(&self.back, |weather| weather.cut_back, &self.front, Some(peer), bytes);
        }
    }

    /// Decides the fate of a datagram. It always draws equally many numbers, so that later
    /// decisions do not depend on the weather.
    fn take(
        &self,
        random: &Mutex<Random>,
        cut: impl Fn(&Weather) -> bool,
        through: &Arc<UdpSocket>,
        to: Option<SocketAddr>,
        bytes: &[u8],
    ) {
        let weather = *lock(&self.weather);
        let (lost, doubled, overtaken, waits) = {
            let mut random = lock(random);
            let jitter_us = u64::try_from(weather.jitter.as_micros()).unwrap_or(u64::MAX);
            (
                random.chance(weather.lost_per_mille),
                random.chance(weather.doubled_per_mille),
                random.chance(weather.overtaken_per_mille),
                weather.delay + Duration::from_micros(random.below(jitter_us)),
            )
        };
        let mut counts = lock(&self.counts);
        if cut(&weather) {
            counts.cut += 1;
            return;
        }
        if lost {
            counts.lost += 1;
            return;
        }
        counts.passed += 1;
        counts.doubled += u64::from(doubled);
        counts.overtaken += u64::from(overtaken);
        drop(counts);
        let due = Instant::now() + waits + if overtaken { OVERTAKEN } else { Duration::ZERO };
        for _ in 0..=u8::from(doubled) {
            let mut under_way = lock(&self.under_way);
            under_way.number += 1;
            let (number, through) = (under_way.number, Arc::clone(through));
            under_way.letters.push(Letter { due, number, through, to, bytes: bytes.to_vec() });
        }
        self.changed.notify_all();
    }

    /// Sends datagrams that are due.
    fn post(&self) {
        let mut under_way = lock(&self.under_way);
        while !self.ended() {
            let due = under_way.letters.peek().map(|letter| letter.due);
            let now = Instant::now();
            match due {
                Some(due) if due <= now => {
                    let Some(letter) = under_way.letters.pop() else { continue };
                    drop(under_way);
                    // Datagrams to an absent peer are lost, as in any network.
                    let _ = match letter.to {
                        Some(to) => letter.through.send_to(&letter.bytes, to),
                        None => letter.through.send(&letter.bytes),
                    };
                    under_way = lock(&self.under_way);
                }
                _ => {
                    let wait = due.map_or(LOOK, |due| due.saturating_duration_since(now));
                    let waited = self.changed.wait_timeout(under_way, wait.min(LOOK));
                    under_way = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

impl Ord for Letter {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // The heap returns the greatest letter, which must be the one due first.
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for Letter {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Letter {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Letter {}

fn socket() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
