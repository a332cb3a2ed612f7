//! Checks a running server's metrics with Prometheus' promtool. Where it is installed, the server's tests give it a
//! page with failures, an ensemble, a sequence and a card.

use crate::cluster::{Cluster, Profile};
use crate::report::{Outcome, Skip};
use crate::{apt, cmd};
use anyhow::{Result, ensure};
use std::fs;

/// Known complaints about names that Triton fixed without `_total` and base units.
const KNOWN: &str = include_str!("../../apps/server/tests/promtool-known.txt");

/// Checks that `/metrics` causes no other complaint, after a model's run and a refused request.
pub(crate) fn suite() -> Result<Outcome> {
    if let Err(error) = apt::promtool() {
        return Ok(Outcome::skip(Skip::new("promtool", format!("{error:#}"))));
    }
    let cluster = Cluster::start(Profile::Dev, "promtool")?;
    let page = page(&cluster);
    cluster.stop()?;
    let file = cmd::root().join("target/xtask/promtool/metrics.txt");
    fs::write(&file, page?)?;
    let mut check = cmd::command("promtool");
    let said = cmd::capture_of(check.args(["check", "metrics"]), fs::File::open(file)?)?.output;
    let new = unknown(&said);
    let failed: Vec<String> = new.iter().map(|line| format!("promtool: {line}")).collect();
    // promtool always complains about a page that it has read.
    match (said.contains("nv_inference_count "), failed.is_empty()) {
        (false, _) => Ok(Outcome::fail(format!("promtool read no page: {said}"))),
        (true, true) => Ok(Outcome::pass()),
        (true, false) => Ok(Outcome { failed, ..Outcome::default() }),
    }
}

/// The complaints that are not known.
fn unknown(said: &str) -> Vec<&str> {
    said.lines().filter(|line| !KNOWN.lines().any(|known| known == *line)).collect()
}

fn page(cluster: &Cluster) -> Result<String> {
    let http = cluster.http()?;
    for (pixels, status) in [(64, "200"), (63, "400")] {
        let pixels = vec!["0"; pixels].join(",");
        let body = format!(
            r#"{{"inputs":[{{"name":"image","shape":[1,1,8,8],"datatype":"FP32","data":[{pixels}]}}]}}"#
        );
        let infer = format!("{http}/v2/models/digits/infer");
        let mut curl = cmd::command("curl");
        curl.args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}"]);
        let answered = cmd::stdout(curl.args(["-d", &body, &infer]))?.output;
        ensure!(answered == status, "an inference is answered {answered}, expected {status}");
    }
    let key = fs::read_to_string(cluster.key_file())?;
    let header = format!("Authorization: Bearer {}", key.trim());
    let url = format!("{http}/metrics");
    let mut curl = cmd::command("curl");
    let metrics = cmd::stdout(curl.args(["--silent", "--fail", "--header", &header, &url]))?;
    ensure!(metrics.ok, "/metrics is not answered");
    Ok(metrics.output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_triton_has_fixed_may_be_said() {
        let said = KNOWN.to_owned() + "lgp_new counter metrics should have \"_total\" suffix\n";
        assert_eq!(unknown(&said), ["lgp_new counter metrics should have \"_total\" suffix"]);
        assert!(KNOWN.lines().all(|line| line.starts_with("nv_")), "our own names may be mended");
    }
}
