//! Requests one at a time and many at once, in each protocol, beside peers and a bare transfer.

use super::load::{DIGITS, Load, Net, RESNET, number};
use super::ours::Ours;
use super::peer::{Peer, System};
use crate::bench::run::Run;
use crate::bench::table::{Column, tabulate};
use anyhow::Result;
use serde_json::{Value, json};

/// Batches of all waiting small requests, up to this number, without a delay.
pub(super) const BATCHES: (&str, &str) = ("RADEON_BATCH_MAX", "32");
const MANY: &str = "64";
const ALONE: [Column; 4] = [
    Column::lower("one at a time, p50", "us", "/alone/latency_us/p50"),
    Column::lower("p99", "us", "/alone/latency_us/p99"),
    Column::higher("64 in flight", "1/s", "/many/per_s"),
    Column::lower("p99 of these", "ms", "/many/latency_us/p99").digits(1).scale(1e-3),
];
const OVER: [Column; 3] = [
    Column::lower("over the model, p50", "us", "/alone/over_model_us/p50"),
    Column::lower("over the model, p99", "us", "/alone/over_model_us/p99"),
    Column::plain("in the model", "us", "/alone/model_us"),
];
/// Ways to this server.
const WAYS: [(&str, &[&str]); 4] = [
    ("HTTP, JSON", &["--form", "json"]),
    ("HTTP, binary", &[]),
    ("gRPC", &["--protocol", "grpc"]),
    ("gRPC, a stream", &["--protocol", "stream"]),
];

/// The protocols for each peer's small requests; all peers take JSON.
const SMALL: [(System, &str, &[&str]); 4] = [
    (System::MlServer, WAYS[0].0, WAYS[0].1),
    (System::MlServer, WAYS[2].0, WAYS[2].1),
    (System::RayServe, WAYS[0].0, WAYS[0].1),
    (System::BentoMl, WAYS[0].0, WAYS[0].1),
];
/// The protocols for large requests. They use binary tensors, because JSON would take longer than the model.
const LARGE: [(System, &str, &[&str]); 3] = [
    (System::MlServer, WAYS[2].0, WAYS[2].1),
    (System::RayServe, WAYS[1].0, WAYS[1].1),
    (System::BentoMl, WAYS[1].0, WAYS[1].1),
];

fn url(ours: &Ours, way: &[&str]) -> Result<String> {
    match way.contains(&"--protocol") {
        true => Ok(format!("http://{}", ours.0.grpc()?)),
        false => ours.0.http(),
    }
}

fn round(ours: &Ours, load: &Load, net: &Net, way: &[&str]) -> Result<Value> {
    let url = url(ours, way)?;
    let alone = load.ask(&url, net, way)?;
    let many = load.ask(&url, net, &[way, &["--in-flight", MANY]].concat())?;
    Ok(json!({ "alone": alone, "many": many }))
}

/// Measures peers and adds their answers and rows to a round's. A peer that does not run here is answered as absent,
/// and does not stop the others.
fn peers(
    load: &Load,
    net: &Net,
    ways: &[(System, &str, &[&str])],
    answer: &mut Value,
    rows: &mut Vec<(String, String)>,
    of: fn(Value) -> Value,
) -> Result<Vec<(System, String)>> {
    let file = net.file()?;
    let mut absent = Vec::new();
    for (at, (system, way, arguments)) in ways.iter().enumerate() {
        match beside(load, *system, &file, net, arguments) {
            Ok(found) => {
                answer[format!("peer{at}")] = of(found);
                let row = (format!("{}: {way}", system.title()), format!("/peer{at}"));
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
            Err(error) => absent.push((*system, format!("{way}: {error:#}"))),
        }
    }
    Ok(absent)
}

/// Notes the absent peers in the run and on its page.
fn note_absent(run: &mut Run, text: &mut String, absent: Vec<(System, String)>) {
    for (system, error) in absent {
        run.note(system.title(), &error);
        *text += &format!("\n{}: {error}\n", system.title());
    }
}

/// Measures the bundled model: this server over each protocol, with and without batches; peers over HTTP with JSON,
/// which all of them support; and MLServer over gRPC.
pub(super) fn small(run: &mut Run, load: &Load) -> Result<String> {
    let mut answers = vec![Value::Null; load.rounds()];
    let (mut rows, mut over, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    for (round_at, answer) in answers.iter_mut().enumerate() {
        for (kind, settings) in [("", &[][..]), (", batches up to 32", &[BATCHES][..])] {
            let ours = Ours::with(&DIGITS, settings)?;
            for (at, (way, arguments)) in WAYS.iter().enumerate() {
                let key = format!("ours{}{at}", settings.len());
                answer[&key] = round(&ours, load, &DIGITS, arguments)?;
                if round_at == 0 {
                    rows.push((format!("this server{kind}: {way}"), format!("/{key}")));
                    if settings.is_empty() {
                        over.push((way.to_string(), format!("/{key}")));
                    }
                }
            }
            ours.0.stop()?;
        }
        absent.extend(peers(load, &DIGITS, &SMALL, answer, &mut rows, |found| found)?);
    }
    let mut text = "The bundled model of digits, 64 numbers in and 10 out.\n\n".to_owned();
    text += &tabulate(run, "system", &answers, &rows, &ALONE)?;
    text += "\nWhat this server adds to the model's own time, one at a time. Goals: HTTP p50 150 us and p99 \
             1 ms, gRPC p50 250 us.\n\n";
    text += &tabulate(run, "way", &answers, &over, &OVER)?;
    note_absent(run, &mut text, absent);
    Ok(text)
}

fn beside(
    load: &Load,
    system: System,
    file: &std::path::Path,
    net: &Net,
    way: &[&str],
) -> Result<Value> {
    let (name, dims) = net.input.split_once(':').unwrap_or((net.input, ""));
    let shape: Vec<usize> = dims.split('x').filter_map(|dim| dim.parse().ok()).collect();
    let zeros = vec![0.0; shape.iter().product()];
    let tensor = json!({"name": name, "shape": shape, "datatype": "FP32", "data": zeros});
    let peer = Peer::start(system, net, file, &json!({ "inputs": [tensor] }).to_string())?;
    let url = match (way.contains(&"--protocol"), way.contains(&"json")) {
        (true, _) => &peer.grpc,
        (false, true) => &peer.http,
        (false, false) => &peer.binary,
    };
    let mut alone = load.ask(url, net, way)?;
    let many = load.ask(url, net, &[way, &["--in-flight", MANY]].concat())?;
    drop(peer);
    let model_us = system.alone_us(file, net.input)?;
    alone["model_us"] = model_us.into();
    alone["over_model_us"] = json!({ "p50": number(&alone, "/latency_us/p50")? - model_us });
    Ok(json!({ "alone": alone, "many": many }))
}

/// Measures ResNet-50 with binary tensors, beside a bare transfer of the same bytes and peers.
pub(super) fn large(run: &mut Run, load: &Load) -> Result<String> {
    const COLUMNS: [Column; 3] = [
        Column::lower("p50", "us", "/latency_us/p50"),
        Column::plain("in the model", "us", "/model_us"),
        Column::lower("over the model, p50", "us", "/over_model_us/p50"),
    ];
    const OUTPUT_BYTES: usize = 4000;
    let shared: &[&str] = &["--form", "shared"];
    let mut rows = Vec::new();
    let mut answers = vec![Value::Null; load.rounds()];
    let mut absent = Vec::new();
    for (round_at, answer) in answers.iter_mut().enumerate() {
        let ours = Ours::with(&RESNET, &[])?;
        let key = ours.0.key_file();
        let ways = [
            ("HTTP, binary", WAYS[1].1.to_vec()),
            ("gRPC", WAYS[2].1.to_vec()),
            ("HTTP, shared memory", [shared, &["--key-file", &key]].concat()),
        ];
        for (at, (_, way)) in ways.iter().enumerate() {
            let url = url(&ours, way)?;
            answer[format!("ours{at}")] = load.ask(&url, &RESNET, way)?;
        }
        let rate = format!("{:.0}", number(answer, "/ours0/per_s")?);
        let bare = load.bare(OUTPUT_BYTES)?;
        for (key, more) in [("bare", &[][..]), ("paced", &["--rate", &rate])] {
            let mut found = load.ask(&bare.url, &RESNET, more)?;
            found["model_us"] = 0.0.into();
            found["over_model_us"] = found["latency_us"].clone();
            answer[key] = found;
        }
        drop(bare);
        if round_at == 0 {
            rows.push((
                "a bare transfer over HTTP, one after another".to_owned(),
                "/bare".to_owned(),
            ));
            rows.push(("the same, as often as the model answers".to_owned(), "/paced".to_owned()));
            let named = ways.iter().enumerate();
            rows.extend(
                named.map(|(at, (way, _))| (format!("this server: {way}"), format!("/ours{at}"))),
            );
        }
        ours.0.stop()?;
        let alone = |found: Value| found["alone"].clone();
        absent.extend(peers(load, &RESNET, &LARGE, answer, &mut rows, alone)?);
    }
    let mut text = "ResNet-50, 602,112 bytes in and 4,000 out, one at a time. The model's time is the mean of \
                    what each answer says, and what is over it that answer's; of the others the p50 of ONNX \
                    Runtime alone. Goals: binary at most the bare transfer and 300 us, shared memory 150 us.\n\n"
        .to_owned();
    text += &tabulate(run, "way", &answers, &rows, &COLUMNS)?;
    note_absent(run, &mut text, absent);
    Ok(text)
}
