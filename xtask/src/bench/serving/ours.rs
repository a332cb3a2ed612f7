//! This server, started for a measurement.

use super::load::{DIGITS, Net, number};
use crate::cluster::{Cluster, Profile, binary};
use crate::cmd;
use anyhow::{Result, ensure};
use serde_json::Value;

/// A cluster of one worker as it is shipped.
pub(super) struct Ours(pub(super) Cluster);

impl Ours {
    pub(super) fn start(flags: &[&str], settings: &[(&str, &str)]) -> Result<Self> {
        Ok(Self(Cluster::start_with(Profile::Release, "serving/ours", 1, flags, settings)?))
    }

    /// The same with a model besides the bundled one.
    pub(super) fn with(net: &Net, settings: &[(&str, &str)]) -> Result<Self> {
        let ours = Self::start(&[], settings)?;
        if net.name == DIGITS.name {
            return Ok(ours);
        }
        let mut add = cmd::command(binary(Profile::Release)?);
        add.args(["models", "add", net.name]).arg(net.file()?).args(["--server", &ours.0.http()?]);
        ensure!(cmd::stdout(add.args(["--key-file", &ours.0.key_file()]))?.ok, "no model added");
        Ok(ours)
    }

    /// Mean microseconds inside the model so far, and requests, as its statistics have them.
    pub(super) fn inside(&self, net: &Net) -> Result<(f64, f64)> {
        let url = format!("{}/v2/models/{}/stats", self.0.http()?, net.name);
        let stats: Value = ureq::get(&url).call()?.body_mut().read_json()?;
        let at = "/model_stats/0/inference_stats/compute_infer";
        let count = number(&stats, &format!("{at}/count"))?;
        Ok((number(&stats, &format!("{at}/ns"))? / 1e3, count))
    }

    /// What `ask` measured, with the mean time inside the model meanwhile as `model_us`.
    pub(super) fn measured(&self, net: &Net, ask: impl FnOnce() -> Result<Value>) -> Result<Value> {
        let (us, count) = self.inside(net)?;
        let mut answer = ask()?;
        let (us_after, count_after) = self.inside(net)?;
        let model_us = (us_after - us) / (count_after - count).max(1.0);
        answer["model_us"] = model_us.into();
        answer["over_model_p50_us"] = (number(&answer, "/latency_us/p50")? - model_us).into();
        answer["over_model_p99_us"] = (number(&answer, "/latency_us/p99")? - model_us).into();
        Ok(answer)
    }
}
