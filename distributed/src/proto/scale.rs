//! How many workers there should be: pure rules over what was measured.
//!
//! Each rule watches one metric and votes for more workers once it has been above a threshold for a
//! while, for fewer once below another; votes have weights. A decision needs all samples of the
//! rule's time to agree, so that a spike changes nothing, and is followed by a cooldown. The caller
//! starts and ends workers.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// What a rule watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleMetric {
    /// Waiting tasks for each slot of a ready worker.
    QueuedPerSlot,
    /// The share of slots that are taken, 0 to 1.
    Occupancy,
}

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ScaleRule {
    /// What it watches.
    pub metric: ScaleMetric,
    /// Votes for more workers above this.
    pub up: f64,
    /// Votes for fewer below this.
    pub down: f64,
    /// Seconds for which the metric must stay there.
    pub for_s: f64,
    /// The weight of its vote.
    pub weight: f64,
}

/// Settings of a [`Scaler`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScaleConfig {
    /// The fewest and the most workers.
    pub workers_min: usize,
    /// See `workers_min`.
    pub workers_max: usize,
    /// Seconds without a decision after one for more workers, and after one for fewer.
    pub cooldown_up_s: f64,
    /// See `cooldown_up_s`.
    pub cooldown_down_s: f64,
    /// The rules, whose votes are added up.
    pub rules: Vec<ScaleRule>,
}

impl Default for ScaleConfig {
    fn default() -> Self {
        let rule = |metric, up, down, for_s| ScaleRule { metric, up, down, for_s, weight: 1.0 };
        Self {
            workers_min: 1,
            workers_max: 1,
            cooldown_up_s: 30.0,
            cooldown_down_s: 60.0,
            rules: vec![
                rule(ScaleMetric::QueuedPerSlot, 2.0, 0.1, 5.0),
                rule(ScaleMetric::Occupancy, 0.9, 0.3, 10.0),
            ],
        }
    }
}

/// What was measured at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScaleSample {
    /// The number of workers that there should be now.
    pub workers: usize,
    /// Slots of ready workers, and how many of them are taken.
    pub slots: u32,
    /// See `slots`.
    pub taken: u32,
    /// Tasks that wait.
    pub queued: u64,
}

impl ScaleSample {
    fn of(&self, metric: ScaleMetric) -> f64 {
        let slots = f64::from(self.slots.max(1));
        match metric {
            ScaleMetric::QueuedPerSlot => {
                f64::from(u32::try_from(self.queued).unwrap_or(u32::MAX)) / slots
            }
            ScaleMetric::Occupancy => f64::from(self.taken) / slots,
        }
    }
}

/// A number of workers to bring about, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScaleDecision {
    /// Workers from now on.
    pub workers: usize,
    /// The votes that led to it.
    pub why: String,
}

/// Applies the rules to one sample after another.
#[derive(Debug)]
pub struct Scaler {
    config: ScaleConfig,
    samples: VecDeque<(Duration, ScaleSample)>,
    quiet_until: Duration,
}

impl Scaler {
    /// A scaler that has seen nothing yet.
    #[must_use]
    pub fn new(config: ScaleConfig) -> Self {
        Self { config, samples: VecDeque::new(), quiet_until: Duration::ZERO }
    }

    /// Takes a sample; returns a decision, if one is due.
    pub fn observe(&mut self, now: Duration, sample: ScaleSample) -> Option<ScaleDecision> {
        let longest = self.config.rules.iter().map(|r| r.for_s).fold(0.0, f64::max);
        let keep = Duration::from_secs_f64(longest.clamp(0.0, 86_400.0));
        self.samples.push_back((now, sample));
        // One sample as old as the longest rule is needed to know that a value held so long.
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= keep) {
            self.samples.pop_front();
        }
        let (least, most) = (self.config.workers_min, self.config.workers_max);
        if sample.workers < least || sample.workers > most {
            let workers = sample.workers.clamp(least, most.max(least));
            return Some(ScaleDecision { workers, why: format!("{least} to {most} are allowed") });
        }
        if now < self.quiet_until {
            return None;
        }
        let votes: Vec<(f64, String)> =
            self.config.rules.iter().filter_map(|rule| self.vote(now, rule)).collect();
        let score: f64 = votes.iter().map(|(vote, _)| vote).sum();
        let why = votes.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; ");
        let workers = match score {
            // Half as many more, so that a burst is met in few steps.
            score if score > 0.0 => (sample.workers + sample.workers.div_ceil(2)).min(most),
            score if score < 0.0 => sample.workers.saturating_sub(1).max(least),
            _ => return None,
        };
        if workers == sample.workers {
            return None;
        }
        let more = workers > sample.workers;
        let config = &self.config;
        let cooldown = if more { config.cooldown_up_s } else { config.cooldown_down_s };
        self.quiet_until = now + Duration::from_secs_f64(cooldown.clamp(0.0, 86_400.0));
        self.samples.clear();
        Some(ScaleDecision { workers, why })
    }

    /// A rule's vote, if all samples of its time agree.
    fn vote(&self, now: Duration, rule: &ScaleRule) -> Option<(f64, String)> {
        let time = Duration::from_secs_f64(rule.for_s.clamp(0.0, 86_400.0));
        let (first, _) = self.samples.front()?;
        if now.saturating_sub(*first) < time {
            return None;
        }
        // The sample at the beginning of the time counts too: it held until the next one.
        let within = self.samples.iter().rev();
        let mut values = Vec::new();
        for (at, sample) in within {
            values.push(sample.of(rule.metric));
            if now.saturating_sub(*at) >= time {
                break;
            }
        }
        let says = |vote: f64, side: &str, limit: f64| {
            let (metric, time) = (rule.metric, rule.for_s);
            (vote, format!("{metric:?} {side} {limit} for {time} s"))
        };
        if values.iter().all(|value| *value > rule.up) {
            Some(says(rule.weight, "above", rule.up))
        } else if values.iter().all(|value| *value < rule.down) {
            Some(says(-rule.weight, "below", rule.down))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaler(most: usize) -> Scaler {
        Scaler::new(ScaleConfig { workers_max: most, ..ScaleConfig::default() })
    }

    fn sample(workers: usize, queued: u64, taken: u32) -> ScaleSample {
        ScaleSample { workers, slots: 4, taken, queued }
    }

    /// Feeds the same sample once a second; returns the decisions with their times.
    fn run(scaler: &mut Scaler, from: u64, seconds: u64, sample: ScaleSample) -> Vec<(u64, usize)> {
        let mut decisions = Vec::new();
        for s in from..from + seconds {
            let decision = scaler.observe(Duration::from_secs(s), sample);
            decisions.extend(decision.map(|decision| (s, decision.workers)));
        }
        decisions
    }

    #[test]
    fn a_queue_that_stays_long_brings_workers_and_a_spike_does_not() {
        let mut scaler = scaler(8);
        assert_eq!(run(&mut scaler, 0, 4, sample(2, 100, 4)), []);
        assert_eq!(run(&mut scaler, 4, 1, sample(2, 0, 2)), [], "the spike is over");
        assert_eq!(run(&mut scaler, 5, 7, sample(2, 100, 4)), [(10, 3)]);
    }

    #[test]
    fn cooldowns_follow_decisions_and_limits_hold() {
        let mut busy = scaler(4);
        assert_eq!(run(&mut busy, 0, 60, sample(3, 100, 4)), [(5, 4), (35, 4)]);
        let mut idle = scaler(4);
        assert_eq!(run(&mut idle, 0, 100, sample(3, 0, 0)), [(5, 2), (65, 2)]);
        assert_eq!(run(&mut scaler(4), 0, 100, sample(1, 0, 0)), [], "one stays");
        assert_eq!(run(&mut scaler(4), 0, 100, sample(4, 100, 4)), [], "no more are allowed");
        assert_eq!(run(&mut scaler(4), 0, 1, sample(9, 0, 0)), [(0, 4)]);
    }

    #[test]
    fn weights_decide_between_rules_that_differ() {
        let config = |weight| ScaleConfig {
            workers_max: 8,
            rules: vec![
                ScaleRule {
                    metric: ScaleMetric::QueuedPerSlot,
                    up: 2.0,
                    down: 0.1,
                    for_s: 2.0,
                    weight,
                },
                ScaleRule {
                    metric: ScaleMetric::Occupancy,
                    up: 0.9,
                    down: 0.3,
                    for_s: 2.0,
                    weight: 1.0,
                },
            ],
            ..ScaleConfig::default()
        };
        // Many tasks wait and few run: perhaps their model is on no worker.
        let odd = sample(2, 100, 0);
        assert_eq!(run(&mut Scaler::new(config(2.0)), 0, 5, odd), [(2, 3)]);
        assert_eq!(run(&mut Scaler::new(config(0.5)), 0, 5, odd), [(2, 1)]);
        assert_eq!(run(&mut Scaler::new(config(1.0)), 0, 5, odd), []);
    }
}
