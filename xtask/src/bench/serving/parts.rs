//! Measurements of this server alone.

use super::load::{DIGITS, Load, number};
use super::ours::Ours;
use super::requests::BATCHES;
use crate::bench::measure::{anonymous, resident};
use crate::bench::run::{Better, Run};
use crate::bench::table::{Column, tabulate};
use crate::cluster::{Profile, binary};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Throughput by requests in flight, with batches and without.
pub(super) fn batching(run: &mut Run, load: &Load) -> Result<String> {
    const COLUMNS: [Column; 6] = [
        Column::higher("no batches", "1/s", "/0/per_s"),
        Column::lower("p99", "ms", "/0/latency_us/p99").digits(2).scale(1e-3),
        Column::higher("up to 32", "1/s", "/1/per_s"),
        Column::lower("p99", "ms", "/1/latency_us/p99").digits(2).scale(1e-3),
        Column::higher("up to 32, after 1 ms", "1/s", "/2/per_s"),
        Column::lower("p99", "ms", "/2/latency_us/p99").digits(2).scale(1e-3),
    ];
    const DELAY: (&str, &str) = ("RADEON_BATCH_DELAY_MS", "1");
    const IN_FLIGHT: [&str; 7] = ["1", "2", "4", "8", "16", "32", "64"];
    let mut answers = vec![json!({}); load.rounds()];
    for answer in &mut answers {
        for (at, settings) in [&[][..], &[BATCHES], &[BATCHES, DELAY]].into_iter().enumerate() {
            let ours = Ours::start(&[], settings)?;
            for n in IN_FLIGHT {
                let found = load.ask(&ours.0.http()?, &DIGITS, &["--in-flight", n])?;
                answer[n][at.to_string()] = found;
            }
            ours.0.stop()?;
        }
    }
    let rows: Vec<_> =
        IN_FLIGHT.iter().map(|n| (format!("{n} in flight"), format!("/{n}"))).collect();
    let text = "The bundled model over HTTP, binary.\n\n".to_owned();
    Ok(text + &tabulate(run, "requests", &answers, &rows, &COLUMNS)?)
}

/// The time until the server is ready, and its memory then.
pub(super) fn footprint(run: &mut Run, load: &Load) -> Result<String> {
    const COLUMNS: [Column; 5] = [
        Column::lower("ready after", "ms", "/ready_ms"),
        Column::lower("resident, coordinator", "MB", "/rss_mb").digits(1),
        Column::lower("of that no part of the program's files", "MB", "/own_mb").digits(1),
        Column::lower("resident, worker", "MB", "/worker_mb").digits(1),
        Column::lower("of that no part of the program's files", "MB", "/worker_own_mb").digits(1),
    ];
    // Built before, because cargo needs longer to find nothing to build than the server to start.
    binary(Profile::Release)?;
    let mut answers = Vec::new();
    for _ in 0..load.rounds() {
        let began = Instant::now();
        let ours = Ours::start(&[], &[])?;
        let ready = ureq::get(&format!("{}/v2/health/ready", ours.0.http()?)).call()?.status();
        let ready_ms = began.elapsed().as_secs_f64() * 1e3;
        ensure!(ready.is_success(), "`start` came back before it was ready");
        std::thread::sleep(Duration::from_secs(1));
        let (rss_mb, own_mb) = (resident(ours.0.pid()?)?.0, anonymous(ours.0.pid()?)?);
        let worker = ours.0.worker_pid()?;
        answers.push(json!({
            "ready_ms": ready_ms, "rss_mb": rss_mb, "own_mb": own_mb,
            "worker_mb": resident(worker)?.0, "worker_own_mb": anonymous(worker)?,
        }));
        ours.0.stop()?;
    }
    let rows = [("a new cluster of one worker".to_owned(), String::new())];
    let text = "From the command until the first answer that it is ready, with a new data folder, whose keys and \
                certificates are made. Goals: 300 ms, 30 MB.\n\n"
        .to_owned();
    Ok(text + &tabulate(run, "start", &answers, &rows, &COLUMNS)?)
}

/// Sends requests at a rate, whatever happens to earlier ones.
fn at_rate(ours: &Ours, load: &Load, per_s: f64) -> Result<Value> {
    let rate = format!("{per_s:.0}");
    let arguments = ["--in-flight", "512", "--rate", &rate];
    let mut found = load.ask(&ours.0.http()?, &DIGITS, &arguments)?;
    let (refused, says_when) =
        (number(&found, "/refused")?, number(&found, "/refused_saying_when")?);
    ensure!(refused.total_cmp(&says_when).is_eq(), "a refusal does not say when to come again");
    found["rate"] = per_s.into();
    Ok(found)
}

/// The highest tried rate without refusals, and twice the most requests that are served.
pub(super) fn overload(run: &mut Run, load: &Load) -> Result<String> {
    const COLUMNS: [Column; 6] = [
        Column::plain("asked", "1/s", "/rate"),
        Column::higher("answered", "1/s", "/per_s"),
        Column::lower("p50", "ms", "/latency_us/p50").digits(1).scale(1e-3),
        Column::lower("p99", "ms", "/latency_us/p99").digits(1).scale(1e-3),
        Column::plain("refused", "", "/refused"),
        Column::lower("a refusal, p50", "ms", "/refused_us_p50").digits(1).scale(1e-3),
    ];
    const TAKEN: (&str, &str) = ("RADEON_PENDING_MAX", "64");
    const SHARES: [f64; 6] = [0.8, 0.7, 0.6, 0.5, 0.4, 0.3];
    let mut answers = vec![json!({}); load.rounds()];
    for answer in &mut answers {
        let ours = Ours::start(&[], &[TAKEN])?;
        // Closed-loop clients find the most; open loops do not wait for answers.
        let most = load.ask(&ours.0.http()?, &DIGITS, &["--in-flight", "64"])?;
        let per_s = number(&most, "/per_s")?;
        // Clients that wait for answers cause no bursts; requests at a fixed rate do.
        for share in SHARES {
            answer["within"] = at_rate(&ours, load, per_s * share)?;
            if answer["within"]["refused"] == 0 {
                break;
            }
        }
        ensure!(answer["within"]["refused"] == 0, "requests are refused at every rate: {answer}");
        answer["beyond"] = at_rate(&ours, load, per_s * 2.0)?;
        ours.0.stop()?;
    }
    let rows = [
        ("so many that none is refused".to_owned(), "/within".to_owned()),
        ("twice the most".to_owned(), "/beyond".to_owned()),
    ];
    let text = "Requests come at a rate, over 512 connections, to a server that takes 64 at a time. The most is what \
                64 clients get that wait for their answers; the first rate is four fifths of it, or by tenths \
                less until none is refused. Every refusal is 503 with `Retry-After`.\n\n"
        .to_owned();
    Ok(text + &tabulate(run, "load", &answers, &rows, &COLUMNS)?)
}

/// The cost of TLS.
pub(super) fn tls(run: &mut Run, load: &Load) -> Result<String> {
    const COLUMNS: [Column; 4] = [
        Column::lower("HTTP, p50", "us", "/http/latency_us/p50"),
        Column::higher("HTTP, 64 in flight", "1/s", "/http_many/per_s"),
        Column::lower("gRPC, p50", "us", "/grpc/latency_us/p50"),
        Column::higher("gRPC, 64 in flight", "1/s", "/grpc_many/per_s"),
    ];
    let mut answers = vec![json!({}); load.rounds()];
    for answer in &mut answers {
        for (name, flags) in [("plain", &[][..]), ("tls", &["--tls", "self-signed"])] {
            let ours = Ours::start(flags, &[])?;
            let ca = ours.0.authority();
            let scheme = if flags.is_empty() { "http" } else { "https" };
            let http = ours.0.http()?;
            let grpc = format!("{scheme}://{}", ours.0.grpc()?);
            let key = ours.0.key_file();
            let with: Vec<&str> = vec!["--ca", &ca, "--key-file", &key];
            for (kind, url, protocol) in [("http", &http, "http"), ("grpc", &grpc, "grpc")] {
                for (many, in_flight) in [("", "1"), ("_many", "64")] {
                    let arguments = ["--protocol", protocol, "--in-flight", in_flight];
                    let found = load.ask(url, &DIGITS, &[&with[..], &arguments].concat())?;
                    answer[name][format!("{kind}{many}")] = found;
                }
            }
            ours.0.stop()?;
        }
    }
    let rows = [
        ("without".to_owned(), "/plain".to_owned()),
        ("TLS 1.3, connections that stay".to_owned(), "/tls".to_owned()),
    ];
    tabulate(run, "", &answers, &rows, &COLUMNS)
}

/// The processes whose memory is watched: the JSON pointer and the title of each.
const PROCESSES: [(&str, &str); 2] =
    [("/rss_mb", "resident, coordinator"), ("/worker_mb", "resident, worker")];
/// The largest accepted ratio of memory at the end to memory after the first minute.
const GROWTH_MAX: f64 = 1.1;

fn grows(first_mb: f64, last_mb: f64) -> bool {
    last_mb > first_mb * GROWTH_MAX
}

/// Ten minutes at four fifths of the highest rate: checks that memory stays, and shows latency.
pub(super) fn soak(run: &mut Run, load: &Load) -> Result<String> {
    const COLUMNS: [Column; 5] = [
        Column::plain("requests", "", "/good"),
        Column::lower("p50", "us", "/latency_us/p50"),
        Column::lower("p99", "us", "/latency_us/p99"),
        Column::lower(PROCESSES[0].1, "MB", PROCESSES[0].0).digits(1),
        Column::lower(PROCESSES[1].1, "MB", PROCESSES[1].0).digits(1),
    ];
    const RUNS: usize = 5;
    let (parts, seconds) = if load.quick { (2, "1") } else { (10, "60") };
    let ours = Ours::start(&[], &[])?;
    let http = ours.0.http()?;
    let waiting = load.ask(&http, &DIGITS, &["--in-flight", "64"])?;
    let too_many = format!("{:.0}", number(&waiting, "/per_s")? * 2.0);
    // To keep a rate costs the generator more than to wait for answers, and a short run may fall into a fast
    // moment of the machine.
    let mut most = f64::INFINITY;
    for _ in 0..RUNS {
        let found = load.ask(&http, &DIGITS, &["--in-flight", "64", "--rate", &too_many])?;
        most = most.min(number(&found, "/per_s")?);
    }
    let rate = format!("{:.0}", most * 0.8);
    let mut all = Vec::new();
    for _ in 0..parts {
        let arguments = ["--in-flight", "64", "--rate", &rate, "--seconds", seconds];
        let mut found = load.ask(&http, &DIGITS, &arguments)?;
        ensure!(found["refused"] == 0, "requests were refused: {found}");
        found["rss_mb"] = resident(ours.0.pid()?)?.0.into();
        found["worker_mb"] = resident(ours.0.worker_pid()?)?.0.into();
        all.push(found);
    }
    ours.0.stop()?;
    let rows: Vec<_> =
        (0..parts).map(|at| (format!("part {:2}", at + 1), format!("/{at}"))).collect();
    for (at, title) in PROCESSES {
        let (first, last) = (number(&all[0], at)?, number(&all[parts - 1], at)?);
        let name = format!("{title}: growth from the first part to the last");
        run.value(&name, "MB", Better::Lower, vec![last - first]);
        // A quick run ends before memory has settled.
        if !load.quick && grows(first, last) {
            let what = format!("{title}: {first:.1} MB after a minute, {last:.1} at the end");
            run.fail("serving-soak", &what);
        }
    }
    let text = format!(
        "{rate} requests a second, {seconds} s for each part; the most is what came of twice as many in the \
         slowest of {RUNS} short runs.\n\n"
    );
    Ok(text + &tabulate(run, "time", &[Value::Array(all)], &rows, &COLUMNS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_grows_by_more_than_a_tenth_is_not_flat() {
        for (first, last, expected) in
            [(40.0, 44.5, true), (40.0, 43.9, false), (40.0, 30.0, false), (60.0, 70.0, true)]
        {
            assert_eq!(grows(first, last), expected, "{first} to {last}");
        }
    }
}
