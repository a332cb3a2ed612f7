//! Large inputs through the cluster and over a bare stream, in turns.

use crate::Result;
use crate::bare::Floor;
use crate::load::{Percentiles, drive};
use crate::options::Options;
use crate::workers::{Crew, cluster, spec};
use lgp_distributed::CoordinatorConfig;
use serde_json::{Value, json};
use std::time::Instant;

/// A picture of 224 × 224 × 3 as f32.
const PICTURE_BYTES: usize = 602_112;

pub(crate) async fn run(options: &Options) -> Result<String> {
    let payload: usize = options.get("payload", PICTURE_BYTES)?;
    let tasks = options.get("tasks", 50)?;
    let turns = options.get("turns", 10)?;
    let spec = spec(payload)?;
    let request = vec![0u8; payload];
    let (coordinator, _, _workers) = cluster(CoordinatorConfig::default(), Crew::ONE).await?;
    let floor = Floor::start().await?;
    let (mut cluster_ms, mut bare_ms) = (Vec::new(), Vec::new());
    let mut rates: [Vec<f64>; 2] = Default::default();
    // The first turn warms up.
    for turn in 0..=turns {
        let began = Instant::now();
        let parts = drive(&coordinator, &spec, tasks, 1, true).await?;
        let cluster_s = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let samples = floor.requests(&request, tasks).await?;
        let bare_s = began.elapsed().as_secs_f64();
        if turn > 0 {
            let mb = (payload * tasks) as f64 / 1e6;
            rates[0].push(mb / cluster_s);
            rates[1].push(mb / bare_s);
            cluster_ms.extend(parts.into_iter().map(|p| p.0 + p.1 + p.2));
            bare_ms.extend(samples);
        }
    }
    coordinator.stop().await;
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(ours, bare)| ours / bare).collect();
    let side = |rates: &[f64], ms| -> Value {
        json!({"mb_per_s": rates, "latency_us": Percentiles::of_ms(ms)})
    };
    Ok(json!({
        "payload_bytes": payload,
        // How inputs came to workers on this machine.
        "transport": "quic",
        "cluster": side(&rates[0], cluster_ms),
        "bare": side(&rates[1], bare_ms),
        "ratio": ratios,
    })
    .to_string())
}
