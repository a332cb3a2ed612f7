//! Assembles a page of metrics.

use lgp_distributed::Percentiles;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType, Quantile,
    Summary,
};
use std::time::Duration;

pub(super) fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}

/// Kinds of metrics with one value.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Counter,
    Gauge,
}

impl Number {
    fn kind(self) -> MetricType {
        match self {
            Self::Counter => MetricType::COUNTER,
            Self::Gauge => MetricType::GAUGE,
        }
    }

    pub(super) fn metric(self, labels: Vec<LabelPair>, value: f64) -> Metric {
        let mut metric = Metric::from_label(labels);
        match self {
            Self::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Self::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        metric
    }
}

#[derive(Default)]
pub(super) struct Page(Vec<MetricFamily>);

impl Page {
    pub(super) fn families(self) -> Vec<MetricFamily> {
        self.0
    }

    /// Adds histograms of durations, with upper bounds in microseconds, the last one unbounded.
    pub(super) fn histogram<'a>(
        &mut self,
        (name, help): (&str, &str),
        bounds_us: &[u64],
        samples: impl Iterator<Item = (Vec<LabelPair>, &'a [u64], u64)>,
    ) {
        let metrics = samples.map(|(labels, counts, sum_ns)| {
            let mut seen = 0;
            let mut buckets = Vec::new();
            for (count, &us) in counts.iter().zip(bounds_us) {
                seen += count;
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(Duration::from_micros(us).as_secs_f64());
                bucket.set_cumulative_count(seen);
                buckets.push(bucket);
            }
            let mut histogram = Histogram::default();
            histogram.set_bucket(buckets);
            histogram.set_sample_count(counts.iter().sum());
            histogram.set_sample_sum(Duration::from_nanos(sum_ns).as_secs_f64());
            let mut metric = Metric::from_label(labels);
            metric.set_histogram(histogram);
            metric
        });
        let metrics = metrics.collect();
        self.family(name, MetricType::HISTOGRAM, help, metrics);
    }

    pub(super) fn family(
        &mut self,
        name: &str,
        kind: MetricType,
        help: &str,
        metrics: Vec<Metric>,
    ) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    pub(super) fn numbers(
        &mut self,
        (name, number, help): (&str, Number, &str),
        samples: impl IntoIterator<Item = (Vec<LabelPair>, u64)>,
    ) {
        // Exact up to 2^53; the format only has floating-point numbers.
        let samples = samples.into_iter().map(|(labels, value)| (labels, value as f64));
        self.measures((name, number, help), samples);
    }

    pub(super) fn measures(
        &mut self,
        (name, number, help): (&str, Number, &str),
        samples: impl IntoIterator<Item = (Vec<LabelPair>, f64)>,
    ) {
        let metric = |(labels, value)| number.metric(labels, value);
        let metrics = samples.into_iter().map(metric).collect();
        self.family(name, number.kind(), help, metrics);
    }

    pub(super) fn by_state(&mut self, family: (&str, Number, &str), states: &[(&str, u64)]) {
        let sample = |&(state, value): &(&str, u64)| (vec![label("state", state)], value);
        self.numbers(family, states.iter().map(sample));
    }

    pub(super) fn summary(&mut self, name: &str, help: &str, values: &Percentiles) {
        let mut summary = Summary::default();
        // A summary without samples has no quantiles; zeros would read as very fast tasks.
        if values.count > 0 {
            let quantiles = [(0.5, values.p50), (0.95, values.p95), (0.99, values.p99)];
            let quantiles = quantiles.map(|(at, ms)| {
                let mut quantile = Quantile::default();
                quantile.set_quantile(at);
                quantile.set_value(ms / 1e3);
                quantile
            });
            summary.set_quantile(quantiles.to_vec());
        }
        // The mean times the count gives the sum.
        summary.set_sample_sum(values.mean * values.count as f64 / 1e3);
        summary.set_sample_count(values.count);
        let mut metric = Metric::default();
        metric.set_summary(summary);
        self.family(name, MetricType::SUMMARY, help, vec![metric]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::TextEncoder;

    #[test]
    fn names_are_kept_and_labels_escaped() {
        let mut page = Page::default();
        page.numbers(("m", Number::Counter, "help"), [(vec![label("a", "x\"\\\n")], 1)]);
        let text = TextEncoder::new().encode_to_string(&page.0).expect("a family with a metric");
        assert_eq!(text, "# HELP m help\n# TYPE m counter\nm{a=\"x\\\"\\\\\\n\"} 1\n");
    }
}
