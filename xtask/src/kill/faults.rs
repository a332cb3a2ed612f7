//! The matrix of faults, and how each is repaired.

use super::engine::{Engine, Kind};
use super::stage::{COORDINATORS, Stage, WORKER};
use crate::chaos::process::signal;
use crate::relay::Random;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// A process by its role when the fault begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Leader,
    Follower,
    OtherFollower,
    Worker,
    /// The leader among the servers of a kind, if one leads.
    First(Kind),
    Second(Kind),
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// `kill -9`, then a restart.
    Kill(Who),
    /// `kill -9` of the leader's local worker, which the leader must replace.
    KillLocal,
    /// SIGSTOP for 5 s.
    Stop(Who),
    /// No packet passes between the two for some seconds.
    Cut(Who, Who),
    /// The disk is full for some seconds.
    Fill(Who),
}

use Fault::{Cut, Fill, Kill, KillLocal, Stop};
use Kind::{Etcd, Nats, Postgres};
use Who::{First, Follower, Leader, OtherFollower, Second, Worker};

const OF_ANY: [Fault; 11] = [
    Kill(Leader),
    Kill(Follower),
    Kill(Worker),
    KillLocal,
    Stop(Leader),
    Cut(Leader, Follower),
    Cut(Follower, OtherFollower),
    Cut(Leader, Worker),
    Cut(Follower, Worker),
    Fill(Leader),
    Fill(Follower),
];
const OF_POSTGRES: [Fault; 4] = [
    Kill(First(Postgres)),
    Cut(Leader, First(Postgres)),
    Cut(Follower, First(Postgres)),
    Fill(First(Postgres)),
];
const OF_ETCD: [Fault; 14] = [
    Kill(First(Etcd)),
    Kill(Second(Etcd)),
    Kill(First(Nats)),
    Kill(Second(Nats)),
    Cut(Leader, First(Etcd)),
    Cut(Leader, First(Nats)),
    Cut(Follower, First(Etcd)),
    Cut(Follower, First(Nats)),
    Cut(First(Etcd), Second(Etcd)),
    Cut(First(Nats), Second(Nats)),
    Fill(First(Etcd)),
    Fill(Second(Etcd)),
    Fill(First(Nats)),
    Fill(Second(Nats)),
];

/// How long a stop, a cut and a full disk last, at most.
const STOPPED: Duration = Duration::from_secs(5);
const LASTS_MS: std::ops::Range<u64> = 1_000..5_000;

/// The fault of a round. Every fault comes once, in an order drawn from the seed, before any is
/// repeated.
pub(super) fn of_round(engine: Engine, seed: u64, round: u64) -> Fault {
    let more: &[Fault] = match engine {
        Engine::Postgres => &OF_POSTGRES,
        Engine::Etcd => &OF_ETCD,
    };
    let mut all = [&OF_ANY, more].concat();
    let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
    let mut random = Random::new(seed ^ (round / count) << 32);
    let at = round % count;
    for left in (at + 1..=count).rev().map(|left| usize::try_from(left).unwrap_or(1)) {
        let drawn = random.below(u64::try_from(left).unwrap_or(1));
        all.swap(left - 1, usize::try_from(drawn).unwrap_or(0));
    }
    all[usize::try_from(at).unwrap_or(0)]
}

impl Fault {
    /// The fault's name for people.
    pub(super) fn name(self) -> String {
        match self {
            Kill(who) => format!("kill -9 of {}", who.name()),
            KillLocal => "kill -9 of the leader's local worker".to_owned(),
            Stop(who) => format!("5 s of SIGSTOP of {}", who.name()),
            Cut(one, other) => format!("cut between {} and {}", one.name(), other.name()),
            Fill(who) => format!("full disk of {}", who.name()),
        }
    }
}

impl Who {
    fn name(self) -> String {
        match self {
            Leader => "the leader".to_owned(),
            Follower => "a follower".to_owned(),
            OtherFollower => "the other follower".to_owned(),
            Worker => "the joined worker".to_owned(),
            First(Postgres) => "PostgreSQL".to_owned(),
            First(Nats) => "NATS's stream leader".to_owned(),
            Second(Nats) => "a NATS follower".to_owned(),
            First(kind) => format!("{kind:?}'s leader").replace('E', "e"),
            Second(kind) => format!("an {kind:?} follower").replace('E', "e"),
        }
    }
}

/// A fault that has struck.
pub(super) struct Struck {
    /// From this time on, all living processes should work again.
    pub(super) over: Instant,
    /// Coordinators whose callers may fail.
    pub(super) hit: Vec<usize>,
    /// The place of the process to start again.
    pub(super) dead: Option<usize>,
}

/// The places of the roles at present.
pub(super) struct Cast {
    places: Vec<(Who, usize)>,
}

impl Cast {
    fn of(stage: &Stage, fault: Fault, random: &mut Random) -> Result<Self> {
        let leader = stage.leader()?;
        let mut followers: Vec<usize> = (0..COORDINATORS).filter(|at| *at != leader).collect();
        if random.chance(500) {
            followers.reverse();
        }
        let mut places = vec![(Leader, leader), (Worker, WORKER)];
        places.extend([Follower, OtherFollower].into_iter().zip(followers));
        for kind in [Postgres, Etcd, Nats] {
            if fault.asks_for(kind) {
                let led = stage.servers.led(&stage.net, kind)?;
                let led = led.into_iter().map(|at| stage.servers.0[at].at);
                places.extend([First(kind), Second(kind)].into_iter().zip(led));
            }
        }
        Ok(Self { places })
    }

    fn place(&self, who: Who) -> Result<usize> {
        let found = self.places.iter().find(|(it, _)| *it == who);
        found.map(|(_, place)| *place).with_context(|| format!("nobody is {who:?}"))
    }
}

impl Fault {
    fn asks_for(self, kind: Kind) -> bool {
        let is_of = |who: Who| matches!(who, First(it) | Second(it) if it == kind);
        match self {
            Kill(who) | Stop(who) | Fill(who) => is_of(who),
            Cut(one, other) => is_of(one) || is_of(other),
            KillLocal => false,
        }
    }

    /// Causes the fault, and repairs all that does not die of it; `lasts` is called while it lasts.
    pub(super) fn strike(
        self,
        stage: &mut Stage,
        random: &mut Random,
        lasts: impl Fn(Duration),
    ) -> Result<Struck> {
        let cast = Cast::of(stage, self, random)?;
        let some = LASTS_MS.start + random.below(LASTS_MS.end - LASTS_MS.start);
        let some = Duration::from_millis(some);
        let (mut hit, mut dead) = (Vec::new(), None);
        match self {
            Kill(who) => {
                let place = cast.place(who)?;
                if place <= WORKER {
                    stage.kill(place)?;
                } else {
                    server(stage, place).kill()?;
                }
                hit.extend((place < COORDINATORS).then_some(place));
                dead = Some(place);
            }
            KillLocal => signal(stage.local_worker(cast.place(Leader)?)?, Signal::KILL),
            Stop(who) => {
                let place = cast.place(who)?;
                hit.push(place);
                let pid = stage.coordinator(place)?.pid();
                signal(pid, Signal::STOP);
                lasts(STOPPED);
                signal(pid, Signal::CONT);
            }
            Cut(one, other) => {
                let (one, other) = (cast.place(one)?, cast.place(other)?);
                stage.net.cut(one, other)?;
                lasts(some);
                stage.net.heal(one, other)?;
            }
            Fill(who) => fill(stage, cast.place(who)?, || lasts(some))?,
        }
        if dead == Some(WORKER + 1) && stage.engine == Engine::Postgres {
            // Without PostgreSQL no task is accepted.
            lasts(some / 3);
            mend(stage, WORKER + 1)?;
            dead = None;
        }
        Ok(Struck { over: Instant::now(), hit, dead })
    }
}

fn server(stage: &mut Stage, place: usize) -> &mut super::engine::Server {
    &mut stage.servers.0[place - WORKER - 1]
}

fn fill(stage: &mut Stage, place: usize, lasts: impl Fn()) -> Result<()> {
    if place < COORDINATORS {
        stage.disks[place].fill()?;
        lasts();
        return stage.disks[place].free();
    }
    server(stage, place).disk.fill()?;
    lasts();
    let server = &mut stage.servers.0[place - WORKER - 1];
    server.disk.free()?;
    if server.kind == Nats {
        // NATS turns JetStream off when its disk is full, until it is restarted.
        server.kill()?;
    }
    server.revive(&stage.net)?;
    server.wait(&stage.net)
}

/// Starts a killed process again.
pub(super) fn mend(stage: &mut Stage, place: usize) -> Result<()> {
    match place {
        WORKER => stage.join(None),
        place if place < COORDINATORS => stage.start(place),
        place => {
            let server = &mut stage.servers.0[place - WORKER - 1];
            server.begin(&stage.net)?;
            server.wait(&stage.net)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_comes_once_before_any_comes_again() {
        for (engine, count) in [(Engine::Postgres, 15), (Engine::Etcd, 25)] {
            let names = |from| {
                let rounds = (from..from + count).map(|round| of_round(engine, 7, round).name());
                rounds.collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(u64::try_from(names(0).len()).unwrap(), count);
            assert_eq!(names(0), names(count));
        }
    }
}
