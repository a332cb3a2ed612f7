//! Clients' requests, drawn from a seed: mostly short and small, some long and large.

use crate::chaos::job::Job;
use crate::chaos::load::lock;
use crate::chaos::submission::{Spec, Submission};
use crate::relay::Random;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The largest outputs and inputs of a task.
const OUTPUT_BYTES_MAX: u64 = 200_000_000;
const INPUT_BYTES_MAX: u64 = 200_000_000;
/// The most bytes of outputs requested within the time that results are kept and read again.
const RESULTS_BYTES_MAX: u64 = 1 << 30;
const RESULTS_KEPT: Duration = Duration::from_secs(630);
/// The length of the longest tasks, which are drawn only when few others are open.
const GIANT_MS: (f64, f64) = (10_000.0, 30_000.0);
/// A volley for a fault to hit: the number of tasks, and their length.
const VOLLEY: u64 = 7;
const VOLLEY_MS: (f64, f64) = (150.0, 700.0);

/// The source of the draws.
pub(super) struct Draw {
    /// Iterations of `work` in a second; none where tasks are of the bundled model alone.
    pace: Option<f64>,
    pictures: u64,
    /// Outputs that were asked for lately.
    results: Mutex<VecDeque<(Instant, u64)>>,
}

impl Draw {
    pub(super) fn new(pace: Option<f64>, pictures: u64) -> Self {
        Self { pace, pictures, results: Mutex::default() }
    }

    /// Whether tasks are like those of users.
    pub(super) fn is_of_use(&self) -> bool {
        self.pace.is_some()
    }

    /// The index of a picture for the bundled model.
    pub(super) fn picture(&self, random: &mut Random) -> usize {
        usize::try_from(random.below(self.pictures)).unwrap_or_default()
    }

    /// A task of `ms` milliseconds.
    fn work(&self, random: &mut Random, ms: f64) -> Job {
        let Some(pace) = self.pace else { return Job::Digits { picture: self.picture(random) } };
        let iterations = (pace * ms / 1e3).max(1.0) as u64;
        let takes = Duration::from_secs_f64(ms / 1e3);
        Job::Work { seed: random.next(), iterations, takes }
    }

    /// One of the longest tasks.
    pub(super) fn giant(&self, random: &mut Random) -> Job {
        let ms = between(random, GIANT_MS.0, GIANT_MS.1);
        self.work(random, ms)
    }

    /// Several tasks that run for a while.
    pub(super) fn volley(&self, random: &mut Random, key: &str) -> Submission {
        let spec = |number| {
            let ms = between(random, VOLLEY_MS.0, VOLLEY_MS.1);
            Spec::new(format!("{key}-{number}"), self.work(random, ms))
        };
        Submission((0..VOLLEY).map(spec).collect())
    }

    /// A task whose client waits for it.
    pub(super) fn short(&self, random: &mut Random) -> Job {
        match random.below(10) {
            0..=2 if self.is_of_use() => {
                let ms = between(random, 1.0, 100.0);
                self.work(random, ms)
            }
            3 if self.is_of_use() => self.big(random, 1 << 20, 1 << 20),
            _ => Job::Digits { picture: self.picture(random) },
        }
    }

    /// Any durable task.
    fn job(&self, random: &mut Random) -> Job {
        match random.below(100) {
            _ if !self.is_of_use() => Job::Digits { picture: self.picture(random) },
            0..12 => Job::Digits { picture: self.picture(random) },
            12..30 => {
                let input = [(78, 1 << 20), (19, 16 << 20), (3, INPUT_BYTES_MAX)];
                let output = [(90, 1 << 20), (8, 16 << 20), (2, OUTPUT_BYTES_MAX)];
                let (input, output) = (one_of(random, &input), one_of(random, &output));
                self.big(random, input, output)
            }
            _ => {
                let ms = [(72, 1.0, 100.0), (22, 100.0, 1_000.0), (6, 1_000.0, 5_000.0)];
                let mut left = random.below(100);
                let found = ms.into_iter().find(|(weight, ..)| {
                    let here = left < *weight;
                    left = left.saturating_sub(*weight);
                    here
                });
                let (_, least, most) = found.unwrap_or(ms[0]);
                let ms = between(random, least, most);
                self.work(random, ms)
            }
        }
    }

    /// A task with inputs and outputs from 1 KB up to the given limits.
    fn big(&self, random: &mut Random, input_max: u64, output_max: u64) -> Job {
        let mut results = lock(&self.results);
        while results.front().is_some_and(|(at, _)| at.elapsed() > RESULTS_KEPT) {
            results.pop_front();
        }
        let kept: u64 = results.iter().map(|(_, bytes)| bytes).sum();
        let room = RESULTS_BYTES_MAX.saturating_sub(kept).clamp(2_048, output_max);
        let [input, output] =
            [input_max, room].map(|most| (between(random, 1_000.0, most as f64) / 8.0) as u64);
        results.push_back((Instant::now(), 8 * output));
        Job::Big { seed: random.next(), input, output }
    }

    /// The next submission of a client, whose own tasks it may depend on.
    pub(super) fn submission(&self, random: &mut Random, key: &str, own: &[String]) -> Submission {
        let mut first = Spec::new(key, self.job(random));
        if !self.is_of_use() {
            return match random.chance(150) {
                true => self.plain_batch(random, key),
                false => Submission(vec![first]),
            };
        }
        self.wishes(random, &mut first);
        if random.chance(120) {
            return self.graph(random, first);
        }
        for _ in 0..2 {
            let some = usize::try_from(random.below(u64::try_from(own.len()).unwrap_or(1)));
            if let Some(id) = own.get(some.unwrap_or_default()).filter(|_| random.chance(100)) {
                first.after.push(id.clone());
            }
        }
        first.after.sort();
        first.after.dedup();
        Submission(vec![first])
    }

    /// A batch of which some tasks wait and some run when the coordinator is killed.
    fn plain_batch(&self, random: &mut Random, key: &str) -> Submission {
        let spec = |at: u64| {
            let key = if at == 0 { key.to_owned() } else { format!("{key}-{at}") };
            Spec::new(key, self.job(random))
        };
        Submission((0..20).map(spec).collect())
    }

    /// Priority and deadline.
    fn wishes(&self, random: &mut Random, spec: &mut Spec) {
        const NAMES: [&str; 5] = ["critical", "high", "normal", "low", "background"];
        if random.chance(400) {
            let name = usize::try_from(random.below(5)).unwrap_or_default();
            spec.priority = NAMES.get(name).copied().unwrap_or("normal");
        }
        if random.chance(100) {
            let cost_ms = spec.job.cost().as_secs_f64() * 1e3;
            let ms = 50.0 + cost_ms * between(random, 0.5, 6.0) + between(random, 1.0, 3_000.0);
            spec.deadline = Some(Duration::from_millis(ms as u64));
        }
    }

    /// A chain, a fan out of the first, or a fan into the last.
    fn graph(&self, random: &mut Random, first: Spec) -> Submission {
        let count = 3 + usize::try_from(random.below(4)).unwrap_or_default();
        let kind = random.below(3);
        let key = first.key.clone();
        let mut specs = vec![first];
        for place in 1..count {
            let mut spec = Spec::new(format!("{key}-{place}"), self.job(random));
            self.wishes(random, &mut spec);
            spec.within = match kind {
                0 => vec![place - 1],
                1 => vec![0],
                _ if place + 1 == count => (0..place).collect(),
                _ => Vec::new(),
            };
            specs.push(spec);
        }
        Submission(specs)
    }
}

/// A number between two limits, with each magnitude equally likely.
fn between(random: &mut Random, least: f64, most: f64) -> f64 {
    let part = f64::from(u32::try_from(random.below(1 << 32)).unwrap_or_default()) / 2f64.powi(32);
    least * (most / least).powf(part)
}

/// A random value by weights that sum to 100.
fn one_of(random: &mut Random, values: &[(u64, u64)]) -> u64 {
    let mut left = random.below(100);
    for (weight, value) in values {
        if left < *weight {
            return *value;
        }
        left -= weight;
    }
    values.first().map_or(1, |(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn most_tasks_are_short_and_small_and_every_class_comes_up() {
        let draw = Draw::new(Some(100_000.0), 8);
        let mut random = Random::new(1);
        let mut classes: BTreeMap<&str, u64> = BTreeMap::new();
        let mut cost = Duration::ZERO;
        for _ in 0..4_000 {
            let job = draw.job(&mut random);
            cost += job.cost();
            assert!(job.input_bytes() <= INPUT_BYTES_MAX && job.output_bytes() <= OUTPUT_BYTES_MAX);
            *classes.entry(job.class()).or_default() += 1;
        }
        *classes.entry(draw.giant(&mut random).class()).or_default() += 1;
        assert_eq!(classes.len(), 10, "{classes:?}");
        assert!(
            classes["work of 1 to 10 s"] < 200 && cost < Duration::from_secs(4_000),
            "{cost:?}"
        );
    }

    #[test]
    fn outputs_stay_within_what_is_kept() {
        let draw = Draw::new(Some(100_000.0), 8);
        let mut random = Random::new(2);
        let all: u64 =
            (0..500).map(|_| draw.big(&mut random, 8_000, OUTPUT_BYTES_MAX).output_bytes()).sum();
        assert!(all < RESULTS_BYTES_MAX + 500 * 2_048, "{all}");
    }

    #[test]
    fn graphs_depend_on_earlier_places_alone() {
        let draw = Draw::new(Some(100_000.0), 8);
        let mut random = Random::new(3);
        let mut shapes = BTreeMap::new();
        for number in 0..200 {
            let job = draw.job(&mut random);
            let graph = draw.graph(&mut random, Spec::new(format!("{number}"), job)).0;
            for (place, spec) in graph.iter().enumerate() {
                assert!(spec.within.iter().all(|other| *other < place));
            }
            let deps: Vec<usize> = graph.iter().map(|spec| spec.within.len()).collect();
            *shapes.entry(deps).or_insert(0) += 1;
        }
        assert!(shapes.len() >= 4, "{shapes:?}");
        let alone = Draw::new(None, 8).submission(&mut random, "k", &[]);
        assert!(alone.0.iter().all(|spec| spec.job.class() == "digits" && spec.after.is_empty()));
    }
}
