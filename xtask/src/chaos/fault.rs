//! What is done to a cluster: a table of faults, and the order in which a seed deals them.

use super::rest::Answer;
use super::stage::Stage;
use crate::relay::{Random, Weather};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// Something that happens to processes or to the network between them.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// How often it comes up, among all.
    weight: usize,
    /// Whether a process is killed with SIGKILL.
    pub(super) kills: bool,
    pub(super) strike: fn(&mut Stage<'_>) -> Result<()>,
}

/// All of them. The time of each is counted from the moment that its name says, or, for what is
/// over when it returns, from its end.
pub(super) const FAULTS: &[Fault] = &[
    fault("coordinator killed", 30, true, |stage| {
        stage.kill_coordinator()?;
        stage.follow()
    }),
    fault("coordinator killed, and again as it starts", 10, true, |stage| {
        stage.kill_coordinator()?;
        let mut follower = stage.site.begin()?;
        std::thread::sleep(stage.some_ms(0, 900));
        follower.kill()?;
        stage.follow()
    }),
    fault("local worker killed", 14, true, |stage| {
        let (_, pid) = stage.a_local()?;
        super::process::signal(pid, Signal::KILL);
        stage.load.hurt();
        Ok(())
    }),
    fault("joined worker killed", 12, true, |stage| {
        let at = stage.a_far()?;
        stage.kill_far(at)?;
        stage.load.hurt();
        stage.bring_back(at)
    }),
    fault("every worker killed", 10, true, |stage| {
        for (_, pid) in stage.locals()? {
            super::process::signal(pid, Signal::KILL);
        }
        (0..stage.far.len()).try_for_each(|at| stage.kill_far(at))?;
        stage.load.hurt();
        (0..stage.far.len()).try_for_each(|at| stage.bring_back(at))
    }),
    fault("coordinator and joined worker killed", 8, true, |stage| {
        let at = stage.a_far()?;
        stage.kill_far(at)?;
        stage.kill_coordinator()?;
        stage.follow()?;
        stage.bring_back(at)
    }),
    fault("worker stopped for less than 1.2 s", 4, false, |stage| {
        stage.stop_a_worker((200, 1_200))
    }),
    fault("worker stopped for 3 to 4 s", 4, false, |stage| stage.stop_a_worker((3_000, 4_000))),
    fault("coordinator stopped for less than 1 s", 3, false, |stage| {
        stop_coordinator(stage, (100, 1_000))
    }),
    fault("coordinator stopped for 3 to 4 s", 3, false, |stage| {
        stop_coordinator(stage, (3_000, 4_000))
    }),
    fault("coordinator drained, ended and started", 3, false, |stage| {
        stage.stop_in_order()?;
        stage.follow()
    }),
    fault("workers restarted in order", 2, false, |stage| {
        stage.load.hurt();
        let answer = stage.load.rest.post_long("restart", &json!({}));
        ensure!(matches!(answer, Answer::Said(200, _)), "restart was met with {answer:?}");
        Ok(())
    }),
    fault("local worker drained", 3, false, |stage| {
        let (name, _) = stage.a_local()?;
        stage.load.hurt();
        let answer = stage.load.rest.post(&format!("workers/{name}/shutdown"), &json!({}));
        ensure!(matches!(answer, Answer::Said(202, _)), "the drain was met with {answer:?}");
        Ok(())
    }),
    fault("joined worker in a bad network", 4, false, |stage| {
        stage.weather(BAD, (1_000, 2_000));
        Ok(())
    }),
    fault("joined worker cut off", 4, false, |stage| {
        stage.weather(Weather::CUT, (2_500, 3_500));
        Ok(())
    }),
];

/// What a bad wireless link does: every twelfth datagram is lost.
const BAD: Weather = Weather {
    lost_per_mille: 80,
    doubled_per_mille: 20,
    overtaken_per_mille: 50,
    delay: Duration::from_millis(20),
    jitter: Duration::from_millis(10),
    ..Weather::CALM
};

/// What a short run tries, one after another.
pub(super) const SAMPLE: [&str; 5] = [
    "coordinator killed",
    "worker stopped for 3 to 4 s",
    "every worker killed",
    "coordinator killed, and again as it starts",
    "joined worker cut off",
];

const fn fault(
    name: &'static str,
    weight: usize,
    kills: bool,
    strike: fn(&mut Stage<'_>) -> Result<()>,
) -> Fault {
    Fault { name, weight, kills, strike }
}

fn stop_coordinator(stage: &mut Stage<'_>, for_ms: (u64, u64)) -> Result<()> {
    stage.coordinator.signal(Signal::STOP);
    let most = stage.some_ms(for_ms.0, for_ms.1);
    if most > Duration::from_secs(2) {
        // It may wake up any time: nobody else gets its folder.
        let mut rival = stage.site.begin()?;
        let status = rival.wait(Duration::from_secs(10));
        ensure!(status.is_ok_and(|s| !s.success()), "a second coordinator took the folder");
    }
    std::thread::sleep(most);
    stage.coordinator.signal(Signal::CONT);
    stage.load.hurt();
    Ok(())
}

/// Faults without end, in an order that depends on the seed: every one comes up as often as its
/// weight says before the first does so again.
pub(super) struct Deck {
    random: Random,
    cards: Vec<&'static Fault>,
}

impl Deck {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), cards: Vec::new() }
    }

    pub(super) fn deal(&mut self) -> Result<&'static Fault> {
        if self.cards.is_empty() {
            self.cards = FAULTS.iter().flat_map(|f| std::iter::repeat_n(f, f.weight)).collect();
            for at in (1..self.cards.len()).rev() {
                let other = usize::try_from(self.random.below(u64::try_from(at + 1)?))?;
                self.cards.swap(at, other);
            }
        }
        self.cards.pop().context("a fault")
    }
}

/// The fault of a name.
pub(super) fn by_name(name: &str) -> Result<&'static Fault> {
    FAULTS.iter().find(|fault| fault.name == name).with_context(|| format!("no fault {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deck_has_every_fault_and_most_of_it_kills() {
        let mut deck = Deck::new(1);
        let all: usize = FAULTS.iter().map(|fault| fault.weight).sum();
        let dealt: Vec<_> = (0..all).map(|_| deck.deal().unwrap()).collect();
        for fault in FAULTS {
            assert_eq!(dealt.iter().filter(|d| d.name == fault.name).count(), fault.weight);
        }
        let kills = dealt.iter().filter(|fault| fault.kills).count();
        assert!(kills * 3 > all * 2, "{kills} of {all}");
        let mut again = Deck::new(1);
        assert!(dealt.iter().all(|fault| fault.name == again.deal().unwrap().name));
        assert!(SAMPLE.iter().all(|name| by_name(name).is_ok()));
    }
}
