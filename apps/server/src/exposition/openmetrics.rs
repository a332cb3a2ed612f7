//! OpenMetrics, if a client asks for it: the same series, with exemplars of traces on the buckets
//! of [`LATENCY`].
//!
//! OpenMetrics counters end in `_total`, which Triton's do not. Triton's get the type `unknown`
//! here, so that names are the same in both formats.

use crate::metrics::Exemplar;
use axum::http::{HeaderMap, header};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Result, TextEncoder};
use std::fmt::Write;
use std::time::UNIX_EPOCH;

/// The media type of answers.
pub(crate) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The histogram whose buckets have exemplars.
pub(super) const LATENCY: &str = "lgp_inference_request_duration_seconds";

/// The suffix of counters' names.
const TOTAL: &str = "_total";

/// Whether a request prefers this format to the text format.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let given = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut ours, mut other) = (0.0, 0.0);
    for range in given.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok());
        let weight = weight.filter(|weight| weight.is_finite()).unwrap_or(1.0);
        if kind.eq_ignore_ascii_case("application/openmetrics-text") {
            ours = f64::max(ours, weight);
        } else if kind.eq_ignore_ascii_case("text/plain") {
            other = f64::max(other, weight);
        }
    }
    ours > 0.0 && ours >= other
}

/// The page; `exemplars` has one for each bucket of [`LATENCY`], in order.
pub(super) fn page(
    families: &[MetricFamily],
    exemplars: impl Iterator<Item = Option<Exemplar>>,
) -> Result<String> {
    let (mut page, mut exemplars, encoder) = (String::new(), exemplars, TextEncoder::new());
    let bucket = format!("{LATENCY}_bucket{{");
    for family in families {
        let (name, kind) = named(family);
        // Writing to a string does not fail.
        let _ = writeln!(page, "# HELP {name} {}", family.help());
        let _ = writeln!(page, "# TYPE {name} {kind}");
        let samples = encoder.encode_to_string(std::slice::from_ref(family))?;
        for line in samples.lines().filter(|line| !line.starts_with('#')) {
            page.push_str(line);
            if line.starts_with(&bucket)
                && let Some(Some(exemplar)) = exemplars.next()
            {
                let at = exemplar.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                let (trace, took) = (exemplar.trace, exemplar.took.as_secs_f64());
                let _ = write!(page, " # {{trace_id=\"{trace}\"}} {took} {at:.3}");
            }
            page.push('\n');
        }
    }
    page.push_str("# EOF\n");
    Ok(page)
}

/// The name and type of a family in this format.
fn named(family: &MetricFamily) -> (&str, &'static str) {
    let name = family.name();
    match family.get_field_type() {
        MetricType::COUNTER => match name.strip_suffix(TOTAL) {
            Some(name) => (name, "counter"),
            None => (name, "unknown"),
        },
        MetricType::GAUGE => (name, "gauge"),
        MetricType::SUMMARY => (name, "summary"),
        MetricType::HISTOGRAM => (name, "histogram"),
        MetricType::UNTYPED => (name, "unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn the_format_that_is_liked_better_is_answered() {
        for (accept, expected) in [
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            ("application/openmetrics-text", true),
            ("application/openmetrics-text;q=0", false),
            ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.6", false),
            (
                "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            ("application/json", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(is_wanted(&headers), expected, "{accept}");
        }
    }
}
