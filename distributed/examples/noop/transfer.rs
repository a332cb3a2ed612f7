//! Large inputs through the cluster and over a bare stream, in turns.

use crate::Result;
use crate::bare::Floor;
use crate::load::{Percentiles, drive};
use crate::options::Options;
use crate::workers::{Crew, cluster, spec};
use lgp_distributed::{Coordinator, CoordinatorConfig, TaskSpec};
use serde_json::json;
use std::time::{Duration, Instant};

/// An image of 224 × 224 × 3 as f32.
const PICTURE_BYTES: usize = 602_112;

pub(crate) async fn run(options: &Options) -> Result<String> {
    let payload: usize = options.get("payload", PICTURE_BYTES)?;
    let tasks = options.get("tasks", 50)?;
    let turns = options.get("turns", 10)?;
    let spec = spec(payload)?;
    let request = vec![0u8; payload];
    let network = CoordinatorConfig { shared_memory_bytes_max: 0, ..CoordinatorConfig::default() };
    let (quic, _, _far) = cluster(network, Crew::ONE).await?;
    let (shared, _, _near) = cluster(CoordinatorConfig::default(), Crew::ONE).await?;
    // Memory is shared shortly after a worker joins, and shown at its next heartbeat.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let floor = Floor::start(false).await?;
    let mut sides: [Side; 3] = Default::default();
    // The first turn warms up.
    for turn in 0..=turns {
        for (at, side) in sides.iter_mut().enumerate() {
            let began = Instant::now();
            let samples = match at {
                0 => latencies(&quic, &spec, tasks).await?,
                1 => latencies(&shared, &spec, tasks).await?,
                _ => floor.requests(&request, tasks).await?,
            };
            if turn > 0 {
                let mb = (payload * tasks) as f64 / 1e6;
                side.mb_per_s.push(mb / began.elapsed().as_secs_f64());
                side.ms.extend(samples);
            }
        }
    }
    let transports = [&quic, &shared].map(|coordinator| {
        let worker = coordinator.workers().into_iter().next();
        json!(worker.map(|worker| worker.transport))
    });
    quic.stop().await;
    shared.stop().await;
    let [quic, shared, bare] = sides;
    let ratio = |side: &Side| -> Vec<f64> {
        side.mb_per_s.iter().zip(&bare.mb_per_s).map(|(ours, bare)| ours / bare).collect()
    };
    let ratios = [ratio(&quic), ratio(&shared)];
    let value =
        |side: Side| json!({"mb_per_s": side.mb_per_s, "latency_us": Percentiles::of_ms(side.ms)});
    let mut answer = json!({
        "payload_bytes": payload,
        "quic": value(quic), "shared": value(shared), "bare": value(bare),
    });
    for (side, (ratio, transport)) in
        ["quic", "shared"].into_iter().zip(ratios.into_iter().zip(transports))
    {
        answer[side]["ratio"] = json!(ratio);
        answer[side]["transport"] = transport;
    }
    Ok(answer.to_string())
}

/// The measurements of one path.
#[derive(Default)]
struct Side {
    mb_per_s: Vec<f64>,
    ms: Vec<f64>,
}

async fn latencies(coordinator: &Coordinator, spec: &TaskSpec, tasks: usize) -> Result<Vec<f64>> {
    let parts = drive(coordinator, spec, tasks, 1, true).await?;
    Ok(parts.into_iter().map(|p| p.0 + p.1 + p.2).collect())
}
