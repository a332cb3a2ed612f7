//! Durable tasks of one coordinator with its folder, and of three that share an engine.

use super::durable::{Cluster, measure};
use super::{Bench, engines};
use crate::chaos::models;
use crate::cluster::{Cluster as Alone, Profile};
use crate::kill::{COORDINATORS, Client, Engine, Stage};
use crate::{apt, cmd};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::Path;

/// One coordinator with redb.
pub(super) fn alone(bench: &Bench) -> Result<Value> {
    let settings = [("RADEON_QUIC__ADVERTISE", "never")];
    let running = Alone::start_with(Profile::Release, "control-embedded", 1, &[], &settings)?;
    let key = running.key_file();
    let data = Path::new(&key).parent().context("the key lies in no folder")?;
    let client = Client::new(&running.http()?, data);
    client.cluster_raw("POST", "models/work", &models::work())?;
    let cluster = Cluster {
        asked: std::slice::from_ref(&client),
        leader: &client,
        coordinators: vec![u32::try_from(running.pid()?)?],
        engine: Vec::new(),
        name: "embedded".to_owned(),
    };
    let leader = measure(&cluster, bench.load, || Ok(Value::Null))?;
    running.stop()?;
    Ok(json!({ "leader": leader, "engine": engines::measure(bench, None, None)? }))
}

/// Three coordinators on an engine, whose servers are then measured alone.
pub(super) fn several(bench: &Bench, engine: Engine) -> Result<Value> {
    let mut stage = stage(bench, engine)?;
    let mut found = json!({ "versions": shown(bench, &stage)?["engine"] });
    let leads = stage.leader()?;
    for (name, asked) in [("leader", leads..leads + 1), ("all", 0..COORDINATORS)] {
        let coordinators = pids(&mut stage)?;
        let cluster = of(&stage, &stage.clients[asked], (leads, coordinators), name);
        found[name] = measure(&cluster, bench.load, || shown(bench, &stage))?;
    }
    ensure!(stage.leader()? == leads, "another coordinator came to lead");
    stage.halt()?;
    let control = stage.control();
    let bare = control.split(',').find(|part| !part.starts_with("etcd://"));
    found["engine"] = engines::measure(bench, Some(control), bare)?;
    Ok(found)
}

/// Starts three coordinators on an engine whose servers are installed.
pub(super) fn stage(bench: &Bench, engine: Engine) -> Result<Stage> {
    match engine {
        Engine::Postgres => apt::postgresql()?,
        Engine::Etcd => apt::etcd_and_nats()?,
    }
    Stage::together(engine, &bench.binary, &bench.folder(engine.name())?)
}

/// A cluster of which only some coordinators get requests.
pub(super) fn of<'a>(
    stage: &'a Stage,
    asked: &'a [Client],
    (leads, coordinators): (usize, Vec<u32>),
    name: &str,
) -> Cluster<'a> {
    Cluster {
        asked,
        leader: &stage.clients[leads],
        coordinators,
        engine: stage.servers.processes().collect(),
        name: name.to_owned(),
    }
}

/// The coordinators' processes.
pub(super) fn pids(stage: &mut Stage) -> Result<Vec<u32>> {
    (0..COORDINATORS).map(|at| Ok(stage.coordinator(at)?.pid())).collect()
}

/// The contents of the control plane.
fn shown(bench: &Bench, stage: &Stage) -> Result<Value> {
    let mut show = cmd::command(&bench.binary);
    show.args(["control", "show", "--json", "--control", stage.control()]);
    let shown = cmd::stdout(&mut show)?;
    ensure!(shown.ok, "`control show` failed");
    serde_json::from_str(&shown.output).context("`control show` printed no JSON")
}
