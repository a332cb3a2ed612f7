//! A coordinator with durable tasks is killed, and restarted on its journal.
//!
//! The coordinator and its callers run in a process of their own, which reports each accepted and
//! each ended task to the parent in a line. The parent kills the process, and asks the next one for
//! every task that was accepted.

use crate::Result;
use crate::options::Options;
use crate::timeline::{Timeline, ms};
use crate::workers::{Crew, Process, spec, told};
use lgp_distributed::{Coordinator, CoordinatorConfig, Error, Pki, TaskId, TaskSpec, TaskState};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const IN_FLIGHT: usize = 64;
/// The time for a restarted coordinator to end every accepted task.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Role {
    folder: PathBuf,
    at: SocketAddr,
    /// A file with the tasks to ask for at the end.
    asked: Option<PathBuf>,
    seconds: u64,
}

/// A line from a coordinator's process, and its time.
struct Said {
    at: Instant,
    line: String,
}

pub(crate) async fn run(options: &Options) -> Result<String> {
    let folder = options.durable().ok_or("restart needs --durable FOLDER")?;
    std::fs::create_dir_all(&folder)?;
    let seconds: u64 = options.get("seconds", 3)?;
    let pki = Pki::open(&folder.join("pki"))?;
    // Workers reconnect to the same port.
    let at = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let asked = folder.join("asked.txt");
    let mut role = Role { folder, at, asked: None, seconds };
    let (mut first, heard) = coordinator(&role)?;
    let _workers = Crew::ONE.start(at, &pki, "worker")?;
    let mut log = Log::default();
    log.listen(&heard, |log| !log.timeline.ends.is_empty())?;
    let began = Instant::now() + Duration::from_secs(seconds) / 3;
    let killed = began + Duration::from_secs(seconds);
    log.listen(&heard, |_| Instant::now() >= killed)?;
    let killed = Instant::now();
    first.kill();
    // Lines that were written before the kill and not read yet count too.
    while let Ok(said) = heard.recv() {
        log.note(said);
    }
    let lines: Vec<String> = log.accepted.iter().map(|id| format!("{id}\n")).collect();
    std::fs::write(&asked, lines.concat())?;
    role.asked = Some(asked);
    let (_second, heard) = coordinator(&role)?;
    log.ready = None;
    log.listen(&heard, |log| log.verdict.is_some())?;
    let to = log.timeline.ends.last().map_or(killed, |(at, _)| *at);
    let recovered = log.timeline.recovered(began, killed, killed);
    Ok(json!({
        "in_flight": IN_FLIGHT,
        "ready_ms": ms(killed, log.ready),
        "first_end_ms": ms(killed, log.timeline.first_after(log.ready.unwrap_or(killed))),
        "recovered_ms": ms(killed, recovered),
        "before": log.timeline.between(began, killed),
        "during": log.timeline.between(killed, recovered.unwrap_or(to)),
        "after": log.timeline.between(recovered.unwrap_or(to), to),
        "accepted_before": lines.len(),
        "lost": log.verdict,
    })
    .to_string())
}

#[derive(Default)]
struct Log {
    timeline: Timeline,
    accepted: Vec<TaskId>,
    ready: Option<Instant>,
    /// How many accepted tasks the second coordinator does not know or did not end.
    verdict: Option<u64>,
}

impl Log {
    fn listen(&mut self, heard: &Receiver<Said>, enough: impl Fn(&Self) -> bool) -> Result<()> {
        let until = Instant::now() + 2 * PATIENCE;
        while !enough(self) {
            if Instant::now() > until {
                return Err("the coordinator's process says nothing of what is waited for".into());
            }
            match heard.recv_timeout(Duration::from_millis(1)) {
                Ok(said) => self.note(said),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn note(&mut self, Said { at, line }: Said) {
        match line.split_once(' ') {
            Some(("accepted", id)) => self.accepted.extend(id.parse::<TaskId>().ok()),
            Some(("ended", us)) => {
                self.timeline.ends.extend(us.parse().ok().map(|us: f64| (at, us / 1e3)));
            }
            Some(("ready", _)) => self.ready = Some(at),
            Some(("lost", count)) => self.verdict = count.parse().ok(),
            // The last line of a killed process may be cut off.
            _ => {}
        }
    }
}

/// Starts a coordinator's process; its lines arrive through the channel.
fn coordinator(role: &Role) -> Result<(Process, Receiver<Said>)> {
    let mut process = Process::start("--coordinator", &serde_json::to_string(role)?)?;
    let stdout = process.0.stdout.take().ok_or("no stdout")?;
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(Said { at: Instant::now(), line }).is_err() {
                return;
            }
        }
    });
    Ok((process, heard))
}

/// Writes and flushes a line, because everything reported before a kill must arrive.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may have ended.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

/// The coordinator's process.
pub(crate) async fn serve() -> Result<()> {
    let Role { folder, at, asked, seconds } = told()?;
    let config = CoordinatorConfig {
        quic_addr: at,
        journal: Some(folder.join("noop.journal")),
        results_max: 10_000_000,
        ..Default::default()
    };
    let coordinator = Coordinator::start(config, &Pki::open(&folder.join("pki"))?).await?;
    say("ready now\n");
    let mut task = spec(64)?;
    task.durable = true;
    for caller in 0..IN_FLIGHT {
        tokio::spawn(call(coordinator.clone(), task.clone(), caller));
    }
    let Some(asked) = asked else { return std::future::pending().await };
    let lost = ask(&coordinator, &asked).await?;
    // Workers may reconnect later than that, and then the rate settles.
    coordinator.wait_for_workers(1).await?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    say(&format!("lost {lost}\n"));
    std::future::pending().await
}

/// How many of the tasks in a file did not succeed.
async fn ask(coordinator: &Coordinator, asked: &Path) -> Result<u64> {
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut lost = 0;
    for line in std::fs::read_to_string(asked)?.lines() {
        let record = tokio::time::timeout_at(until, coordinator.wait(line.parse()?)).await;
        lost += u64::from(!matches!(record, Ok(Ok(r)) if r.state == TaskState::Succeeded));
    }
    Ok(lost)
}

/// Runs one durable task after another.
async fn call(coordinator: Coordinator, task: TaskSpec, caller: usize) {
    for number in 0.. {
        let began = Instant::now();
        let mut task = task.clone();
        // The key keeps its record for the question at the end.
        task.idempotency_key = Some(format!("{}-{caller}-{number}", std::process::id()));
        match coordinator.submit_all(vec![(task, Vec::new())]).await {
            Ok(ids) => {
                for id in ids {
                    say(&format!("accepted {id}\n"));
                    if coordinator.wait(id).await.is_ok() {
                        say(&format!("ended {}\n", began.elapsed().as_micros()));
                    }
                }
            }
            Err(Error::Overloaded { retry_after, .. }) => tokio::time::sleep(retry_after).await,
            Err(_) => return,
        }
    }
}
