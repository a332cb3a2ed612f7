//! This server, started for a measurement.

use super::load::{DIGITS, Net};
use crate::cluster::{Cluster, Profile, binary};
use crate::cmd;
use anyhow::{Result, ensure};

/// A cluster of one worker with default settings.
pub(super) struct Ours(pub(super) Cluster);

impl Ours {
    pub(super) fn start(flags: &[&str], settings: &[(&str, &str)]) -> Result<Self> {
        Ok(Self(Cluster::start_with(Profile::Release, "serving/ours", 1, flags, settings)?))
    }

    /// As [`Self::start`], with a second model besides the bundled one.
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
}
