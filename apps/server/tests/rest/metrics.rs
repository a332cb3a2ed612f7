//! The page of metrics, as what checks metrics for Prometheus reads it.

use crate::ensembles::{INFER, plain, put};
use crate::{devices, sequences};
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

/// What is said of the names that Triton has fixed.
const KNOWN: &str = include_str!("../promtool-known.txt");

#[tokio::test(flavor = "multi_thread")]
async fn promtool_says_nothing_but_what_tritons_names_make_it_say() {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    promtool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = match promtool.spawn() {
        Ok(promtool) => promtool,
        Err(error) => return println!("skipped: promtool: {error}"),
    };
    let rig = devices::rig(devices::card()).await;
    sequences::add(&rig, "adds", 60_000).await;
    assert_eq!(sequences::infer(&rig, "adds", 1.0, sequences::first(1)).await.0, 200);
    put(&rig, "ensemble", "ensemble.toml", &plain("relu"));
    put(&rig, "broken", "ensemble.toml", &plain("fails"));
    for (model, body, status) in
        [("ensemble", INFER, 200), ("broken", INFER, 500), ("relu", "{}", 400)]
    {
        let answer = rig.post(&format!("/v2/models/{model}/infer"), body).await;
        assert_eq!(answer.status, status, "{}", answer.text());
    }
    let all = |page: &str| {
        let series = [
            r#"nv_inference_request_failure{model="fails",version="1",reason="BACKEND"} 1"#,
            r#"nv_inference_request_success{model="ensemble",version="1"} 1"#,
            r#"lgp_sequences{model="adds",version="1"} 1"#,
            r#"nv_energy_consumption{gpu_uuid="w1/opencl:0""#,
        ];
        series.iter().all(|series| page.contains(series))
    };
    let page = rig.until("/metrics", |answer| all(&answer.text())).await.text();
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let said: BTreeSet<&str> = said.lines().collect();
    assert_eq!(said, KNOWN.lines().collect::<BTreeSet<&str>>());
}
