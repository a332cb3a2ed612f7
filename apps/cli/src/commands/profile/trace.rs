//! A profile as Chrome's trace events (the "JSON Object Format" of the Trace Event Format).

use crate::failure::{Failure, Result};
use lgp_inference::Profile;
use serde_json::json;

/// One complete event (`"ph": "X"`) for each node; times are in microseconds.
pub(super) fn events(profile: &Profile) -> Result<String> {
    let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
    let events = profile.nodes.iter().map(|node| {
        json!({
            "name": node.name,
            "cat": node.op,
            "ph": "X",
            "ts": micros(node.start),
            "dur": micros(node.duration),
            "pid": 1,
            "tid": 1,
            "args": {
                "op": node.op,
                "bytes_read": node.bytes_read,
                "multiply_adds": node.multiply_adds,
                "bytes_written": node.bytes_written,
                "outputs": node.outputs.iter().map(ToString::to_string).collect::<Vec<_>>(),
            },
        })
    });
    let events: Vec<_> = events.collect();
    serde_json::to_string(&json!({ "displayTimeUnit": "ms", "traceEvents": events }))
        .map_err(Failure::internal)
}
