//! Compares counts and lists that are kept up to date with a look at everything.

use super::{Placement, Seat, Worker};
use std::collections::BTreeSet;

impl Placement {
    /// Panics where a count, a list or a cache is wrong.
    pub(in crate::proto) fn check(&self) {
        for (id, seat) in self.fleet.ready_seats() {
            let worker = self.fleet.worker_at(id).expect("every seat has a worker");
            assert!(worker.is_ready() && worker.seats().contains(&id), "seat {id}");
            assert_eq!(self.fleet.idle().contains(&id), seat.held().is_empty(), "seat {id}");
        }
        let count = |of: fn(&Seat) -> u64| self.fleet.ready_seats().map(|(_, s)| of(s)).sum();
        let sums = self.fleet.sums();
        let free = |seat: &Seat| u64::from(seat.lanes.free(seat.held()));
        let sum = |of: fn(&Seat) -> u64| -> u64 { count(of) };
        assert_eq!(sums.free, sum(free));
        assert_eq!(sums.yielding, sum(|seat| seat.held().tally().yielding.into()));
        assert_eq!(sums.yields, sum(|seat| seat.held().tally().yields.into()));
        assert_eq!(sums.moves, sum(|seat| seat.held().tally().moves.into()));
        let lost = self.fleet.workers().filter(|w| w.is_lost()).map(Worker::session);
        assert!(lost.eq(self.fleet.lost()));
        let most = self.fleet.workers().map(Worker::input_bytes_max).max();
        assert_eq!(self.fleet.input_bytes_most(), most);
        let seats = || self.fleet.ready_seats().map(|(_, seat)| seat);
        let models: BTreeSet<_> = seats().flat_map(Seat::present).collect();
        assert_eq!(self.present.len(), models.len());
        for model in &models {
            let having = seats().filter(|seat| seat.has(model)).count();
            assert_eq!(self.present(model), having, "{model}");
        }
        for (id, seat) in self.fleet.seats() {
            for (model, wanted) in &self.models {
                let own = wanted.needs().batching.is_some() && seat.state_of(model).is_some();
                assert_eq!(seat.own_free(model).is_some(), own, "{model} at seat {id}");
                let held = seat.held().values().filter(|held| *held.model == *model).count();
                assert_eq!(seat.held().of(model) as usize, held, "{model} at seat {id}");
            }
        }
        self.capabilities.check(&self.fleet, &self.models);
    }
}
