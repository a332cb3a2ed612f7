//! The order of faults for a seed.

use super::{FAULTS, Fault};
use crate::relay::Random;
use anyhow::{Context, Result};

/// An endless series of faults in an order drawn from the seed. Every fault is dealt as often as
/// its weight before the deck is refilled.
pub(in crate::chaos) struct Deck {
    random: Random,
    cards: Vec<&'static Fault>,
}

impl Deck {
    pub(in crate::chaos) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), cards: Vec::new() }
    }

    /// The next fault that is `possible`. A fault that is not possible now is dealt as soon as it
    /// is, and one for which `has` is false never.
    pub(in crate::chaos) fn deal(
        &mut self,
        has: impl Fn(&Fault) -> bool,
        possible: impl Fn(&Fault) -> bool,
    ) -> Result<&'static Fault> {
        for _ in 0..2 {
            self.cards.retain(|fault| has(fault));
            if let Some(at) = self.cards.iter().rposition(|fault| possible(fault)) {
                return Ok(self.cards.remove(at));
            }
            let left = std::mem::take(&mut self.cards);
            let all = FAULTS.iter().copied().flatten();
            self.cards = all.flat_map(|f| std::iter::repeat_n(f, f.weight)).collect();
            for at in (1..self.cards.len()).rev() {
                let other = usize::try_from(self.random.below(u64::try_from(at + 1)?))?;
                self.cards.swap(at, other);
            }
            self.cards.extend(left);
        }
        None.context("no fault is possible")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, SAMPLE, by_name};
    use super::*;
    use crate::chaos::world::Need;

    #[test]
    fn a_deck_has_every_fault_and_most_of_it_kills() {
        let mut deck = Deck::new(1);
        let faults: Vec<&Fault> = FAULTS.iter().copied().flatten().collect();
        let all: usize = faults.iter().map(|fault| fault.weight).sum();
        let deal = |deck: &mut Deck| deck.deal(|_| true, |_| true).unwrap();
        let dealt: Vec<_> = (0..all).map(|_| deal(&mut deck)).collect();
        for fault in &faults {
            assert_eq!(dealt.iter().filter(|d| d.name == fault.name).count(), fault.weight);
        }
        let kills = dealt.iter().filter(|fault| fault.kind == Kind::Kills).count();
        assert!(kills * 5 > all * 3, "{kills} of {all}");
        let mut again = Deck::new(1);
        assert!(dealt.iter().all(|fault| fault.name == deal(&mut again).name));
        let plain = |name: &&str| by_name(name).unwrap().need == Need::Nothing;
        assert!(SAMPLE.iter().all(plain));
    }

    #[test]
    fn what_cannot_be_now_comes_later_and_what_cannot_be_had_never() {
        let has = |fault: &Fault| fault.need == Need::Nothing;
        let mut deck = Deck::new(2);
        let faults: Vec<&Fault> = FAULTS.iter().copied().flatten().filter(|f| has(f)).collect();
        let all: usize = faults.iter().map(|fault| fault.weight).sum();
        let orderly = |fault: &Fault| fault.kind == Kind::Orderly;
        let late = faults.iter().filter(|f| orderly(f)).map(|f| f.weight).sum::<usize>();
        for _ in 0..all - late {
            let fault = deck.deal(has, |fault| !orderly(fault)).unwrap();
            assert!(has(fault) && !orderly(fault));
        }
        assert!((0..late).all(|_| orderly(deck.deal(has, |_| true).unwrap())));
        assert!(deck.deal(|_| false, |_| true).is_err());
    }
}
