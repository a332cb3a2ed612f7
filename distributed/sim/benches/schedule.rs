//! The cost of scheduling without a network: submission, choice of a worker, completion.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lgp_distributed::balancing_strategies;
use lgp_distributed_sim::{Carousel, Selection};
use std::time::Duration;

fn turns(c: &mut Criterion) {
    let mut group = c.benchmark_group("task through the core");
    for strategy in balancing_strategies() {
        for workers in [1, 10, 50] {
            let mut carousel = Carousel::new(workers, strategy).expect("a known strategy");
            group.bench_function(BenchmarkId::new(strategy, workers), |b| {
                b.iter(|| carousel.turn().expect("there are workers"));
            });
        }
    }
    group.finish();
}

/// A choice alone, with measurements that are fresh or some minutes old.
fn choices(c: &mut Criterion) {
    for (name, wait) in [("choice", 0), ("choice, old measurements", 100)] {
        let mut group = c.benchmark_group(name);
        // There are many cases, and each is short and steady.
        group.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
        for strategy in balancing_strategies() {
            for workers in [50, 5_000] {
                let mut selection = Selection::new(workers, strategy).expect("a known strategy");
                selection.wait(Duration::from_secs(wait));
                group.bench_function(BenchmarkId::new(strategy, workers), |b| {
                    b.iter(|| assert!(selection.choose(), "there are workers"));
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, turns, choices);
criterion_main!(benches);
