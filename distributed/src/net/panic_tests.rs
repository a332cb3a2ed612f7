//! A panic within the core, in a process of its own: the process ends, and says why.

use crate::net::tests::ANY;
use crate::{Coordinator, CoordinatorConfig, Pki};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

/// Set in the process that is to end.
const WITHIN: &str = "LGP_PANIC_WITHIN";
const LIMIT: Duration = Duration::from_secs(60);
const SIGABRT: i32 = 6;

#[tokio::test]
async fn a_panic_within_the_core_ends_the_process_with_a_log() {
    if std::env::var_os(WITHIN).is_some() {
        return panic_within().await;
    }
    let name = "net::panic_tests::a_panic_within_the_core_ends_the_process_with_a_log";
    let mut command = tokio::process::Command::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", name, "--nocapture"]).env(WITHIN, "1").kill_on_drop(true);
    command.stdin(Stdio::null());
    let ended = tokio::time::timeout(LIMIT, command.output()).await;
    let output = ended.expect("it goes on half alive").expect("it is started");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert_eq!(output.status.signal(), Some(SIGABRT), "{text}");
    assert!(text.contains("a panic has left the coordinator's state unusable"), "{text}");
    assert!(!text.contains("still here"), "{text}");
}

async fn panic_within() {
    tracing_subscriber::fmt().init();
    let pki = Pki::generate().expect("random numbers");
    let config = CoordinatorConfig { quic_addr: ANY, ..CoordinatorConfig::default() };
    let coordinator = Coordinator::start(config, &pki).await.expect("a free port");
    let shared = Arc::clone(coordinator.shared());
    let panicked = std::thread::spawn(move || shared.with(|_, _| panic!("planted"))).join();
    assert!(panicked.is_err());
    println!("{:?} still here", coordinator.stats().tasks);
}
