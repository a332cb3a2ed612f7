//! `bench serving`: requests to a running or a temporary cluster over HTTP and gRPC, in sequence on a number of
//! connections, and at a fixed rate whatever happens to earlier requests.

use super::Common;
use super::frame::{Prepared, Run};
use super::sample::Better;
use crate::cluster::{self, Cluster, Listeners, Signals, temporary};
use crate::device;
use crate::failure::{Failure, Result};
use crate::folder;
use crate::output::Output;
use crate::rest::Target;
use indicatif::ProgressBar;
use lgp_server::{Load, LoadProtocol, LoadReport, ServerConfig};
use serde_json::json;
use std::path::Path;
use tokio::runtime::Builder;

/// The number of workers in a temporary cluster.
const WORKERS: usize = 2;

/// Flags of `bench serving`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  radeon-cluster bench serving --connections 16 --rate 500 --json\n\n\
    Without --data and --server it starts a cluster of two workers and ends it. closed has each connection\n\
    wait for its answer; open sends at the rate and counts from when a request was due. The requests\n\
    come from one thread of this machine. errors are refusals, wrong answers, and what was due and never\n\
    sent."
)]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Where gRPC is served, of a cluster that is named by --server
    #[arg(long, value_name = "URL", requires = "server")]
    grpc: Option<String>,
    /// The model
    #[arg(long, value_name = "NAME", default_value = "digits")]
    model: String,
    /// Name and dimensions of the model's one input of f32, which gets numbers at random
    #[arg(long, value_name = "NAME:DIMxDIM", default_value = "image:1x1x8x8")]
    input: String,
    /// Requests that are under way at once
    #[arg(long, value_name = "C", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Requests a second of the open loop
    #[arg(long, value_name = "R", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    #[command(flatten)]
    common: Common,
}

/// How long loads are, and how often they are repeated.
struct Effort {
    rounds: usize,
    seconds: f64,
    warm_seconds: f64,
}

/// The addresses of the measured cluster.
struct Served {
    http: String,
    grpc: Option<String>,
}

/// Measures a cluster that serves.
pub(super) fn run(args: &Args, out: Output) -> Result<()> {
    let effort = match args.common.quick {
        true => Effort { rounds: 4, seconds: 0.25, warm_seconds: 0.1 },
        false => Effort { rounds: 8, seconds: 2., warm_seconds: 0.5 },
    };
    let prepared = Prepared::of("serving", &args.common)?;
    let is_running = args.target.data.is_some() || args.target.server.is_some();
    let folder = (!is_running).then(temporary::Folder::new).transpose()?;
    temporary::block_on(async |signals| {
        let Some(folder) = &folder else {
            let served = running(args)?;
            let measured = measure((args, prepared), &served, &effort, signals, out);
            return measured.await;
        };
        let id = device::id(device::resolve("auto")?.as_ref());
        let place = (folder.path(), id, WORKERS);
        temporary::with(place, signals, async |cluster, signals| {
            let service = serve(cluster, folder.path()).await?;
            let [http, grpc] = [service.url(), service.grpc_url()].map(str::to_owned);
            let served = Served { http, grpc: Some(grpc) };
            let measured = measure((args, prepared), &served, &effort, signals, out).await;
            service.finish().await;
            measured
        })
        .await
    })
}

/// The cluster that the flags name.
fn running(args: &Args) -> Result<Served> {
    if args.target.fingerprint.is_some() {
        return Err(Failure::usage("--fingerprint is not for loads")
            .hint("name the certificates to trust with --ca"));
    }
    match &args.target.server {
        Some(server) => Ok(Served { http: server.clone(), grpc: args.grpc.clone() }),
        None => {
            let endpoint = folder::running(&args.target.data_folder()?)?;
            Ok(Served { http: endpoint.local.unwrap_or(endpoint.http), grpc: endpoint.grpc })
        }
    }
}

async fn serve(cluster: &Cluster, data: &Path) -> Result<cluster::Service> {
    let access = cluster::access(&cluster.pki, data)?;
    cluster::serve(cluster, access, Listeners::local().await?, ServerConfig::default())
}

async fn measure(
    (args, prepared): (&Args, Prepared<'_>),
    served: &Served,
    effort: &Effort,
    signals: &mut Signals,
    out: Output,
) -> Result<()> {
    let mut protocols = vec![("http", LoadProtocol::Http, served.http.as_str())];
    protocols.extend(served.grpc.as_deref().map(|grpc| ("grpc", LoadProtocol::Grpc, grpc)));
    let config = json!({
        "protocols": protocols.iter().map(|(name, ..)| *name).collect::<Vec<_>>(),
        "model": args.model,
        "input": args.input,
        "connections": args.connections,
        "rate": args.rate,
        "seconds": effort.seconds,
        "temporary": args.target.data.is_none() && args.target.server.is_none(),
    });
    let mut measured = prepared.begin(config)?;
    let bar = out.progress((effort.rounds * protocols.len() * 2) as u64, "loads");
    // Protocols take turns, so that disturbances of the machine affect all of them.
    for _ in 0..effort.rounds {
        for (name, protocol, url) in &protocols {
            for (how, rate) in [("closed", None), ("open", Some(f64::from(args.rate)))] {
                let load = Load {
                    protocol: *protocol,
                    url: (*url).to_owned(),
                    model: args.model.clone(),
                    input: args.input.clone(),
                    in_flight: usize::from(args.connections),
                    seconds: effort.seconds,
                    warm_seconds: effort.warm_seconds,
                    rate,
                    key_file: args.target.key_file.clone(),
                    ca: args.target.ca.clone(),
                    ..Load::default()
                };
                let report = signals.until(send(load)).await?;
                add(&mut measured, &format!("{name} {how}"), &report)?;
                bar.inc(1);
            }
        }
    }
    finish(measured, served, &bar, out)
}

fn finish(measured: Run<'_>, served: &Served, bar: &ProgressBar, out: Output) -> Result<()> {
    bar.finish_and_clear();
    let unknown =
        "grpc is not measured: nothing says where it is served; name it with --grpc URL\n";
    let note = if served.grpc.is_none() { unknown } else { "" };
    let text = measured.table() + note;
    measured.finish(json!({ "grpc_measured": served.grpc.is_some() }), || text, out)
}

/// Sends a load from its own thread, so that a cluster in this process keeps running.
async fn send(load: Load) -> Result<LoadReport> {
    let sent = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok::<_, Failure>(runtime.map_err(Failure::internal)?.block_on(load.run())?)
    });
    sent.await.map_err(Failure::internal)?
}

/// Adds the results of a load.
fn add(measured: &mut Run<'_>, name: &str, report: &LoadReport) -> Result<()> {
    if report.good == 0 {
        let unbad = match report.refused {
            0 => "none was due in the measured time",
            _ => "the server has no room for any",
        };
        let why = report.first_bad.as_deref().unwrap_or(unbad);
        let message = format!("{name}: no request was answered: {}", crate::output::plain(why));
        return Err(Failure::new("not_served", message)
            .hint("radeon-cluster models says what is served, and --input names its input"));
    }
    measured.add(format!("{name} rate"), "1/s", Better::Higher, [report.per_s]);
    let latency = &report.latency_us;
    for (what, us) in [("p50", latency.p50), ("p95", latency.p95), ("p99", latency.p99)] {
        measured.add(format!("{name} {what}"), "ms", Better::Lower, [us / 1e3]);
    }
    let errors = (report.refused + report.bad + report.unsent) as f64;
    measured.add(format!("{name} errors"), "requests", Better::Lower, [errors]);
    Ok(())
}
