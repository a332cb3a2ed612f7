//! What scheduling costs without a network: submission, choice of a worker, completion.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lgp_distributed::{Carousel, balancing_strategies};

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

criterion_group!(benches, turns);
criterion_main!(benches);
