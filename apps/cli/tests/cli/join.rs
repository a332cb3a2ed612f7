//! Machines that join: a second process with its own data folder.

use crate::harness::{self, Cluster, World, ZERO, best, eventually, npy, read_npy, signal};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Child;
use std::time::Duration;

/// `join` in the foreground.
struct Joined {
    process: Child,
    said: Value,
}

impl Joined {
    fn start(world: &World, args: &[&str]) -> Self {
        let mut process = world.spawn(&[&["join", "--json", "--device", "cpu"], args].concat());
        let mut line = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let Ok(said) = serde_json::from_str(&line) else {
            let output = harness::output(process);
            panic!("{}", String::from_utf8_lossy(&output.stderr))
        };
        Self { process, said }
    }

    fn leave(self) {
        signal(self.process.id(), Signal::INT);
        // Reads its logs, so that a full pipe does not block it.
        let output = harness::output(self.process);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn submit_zero(cluster: &Cluster) -> usize {
    let world = &cluster.world;
    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let out = world.path("out").display().to_string();
    let submit = ["submit", "--model", "digits", "--input", &image, "--wait", "--output-dir", &out];
    assert_eq!(cluster.run(&submit).json()["state"], json!("succeeded"));
    best(&read_npy(&world.path("out/logits.npy")).1)
}

#[test]
fn a_machine_joins_fetches_the_model_and_answers() {
    let cluster = Cluster::start(World::new(), "0");
    let quic = text(&cluster.endpoint["quic"]).to_owned();
    let made = cluster.run(&["token", "create"]).json();
    let token = text(&made["token"]);
    let folder = cluster.world.path("far").display().to_string();
    let args = [quic.as_str(), token, "--data", &folder, "--name", "far"];
    let joined = Joined::start(&cluster.world, &args);
    assert_eq!((&joined.said["name"], &joined.said["enrolled"]), (&json!("far"), &json!(true)));
    eventually("the worker is ready", || cluster.workers("ready").len() == 1);
    assert_eq!(submit_zero(&cluster), 0);
    let workers = cluster.run(&["workers"]).json();
    assert_eq!((&workers[0]["id"], &workers[0]["models"]), (&json!("far"), &json!(["digits/1"])));

    // The token is used up, and a second use is told so.
    let elsewhere = cluster.world.path("elsewhere").display().to_string();
    let again = ["join", &quic, token, "--data", &elsewhere, "--device", "cpu", "--json"];
    let (code, message) = cluster.world.run(&again).error(1);
    assert_eq!(code, "token_used_up", "{message}");
    assert_eq!(cluster.run(&["token", "ls"]).json()[0]["state"], json!("used_up"));

    // The machine comes back without a token to a restarted coordinator.
    joined.leave();
    cluster.run(&["stop"]).json();
    let cluster = Cluster::start(cluster.world, "0");
    let quic = text(&cluster.endpoint["quic"]).to_owned();
    let joined = Joined::start(&cluster.world, &[&quic, "--data", &folder]);
    assert_eq!((&joined.said["name"], &joined.said["enrolled"]), (&json!("far"), &json!(false)));
    eventually("the worker is ready", || cluster.workers("ready").len() == 1);
    assert_eq!(submit_zero(&cluster), 0);
    // A used token stays used.
    let made = made["token"].as_str().expect("a token");
    let again = ["join", &quic, made, "--data", &elsewhere, "--device", "cpu", "--json"];
    assert_eq!(cluster.world.run(&again).error(1).0, "token_used_up");
    joined.leave();
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn a_machine_that_may_not_join_is_told_why() {
    let cluster = Cluster::start(World::new(), "0");
    let quic = text(&cluster.endpoint["quic"]).to_owned();
    let folder = cluster.world.path("far").display().to_string();
    let join = |args: &[&str]| {
        let flags = ["--data", &folder, "--device", "cpu", "--json"];
        cluster.world.run(&[&["join"], args, &flags].concat())
    };
    let made = cluster.run(&["token", "create", "--uses", "2", "--ttl", "30m"]).json();
    assert_eq!((&made["uses"], &made["uses_left"]), (&json!(2), &json!(2)));
    let token = text(&made["token"]);
    let mut parts: Vec<&str> = token.split('.').collect();

    assert_eq!(join(&[&quic]).error(1).0, "token_missing");
    let data = cluster.world.path("data").display().to_string();
    let taken = ["join", &quic, token, "--data", &data, "--device", "cpu", "--json"];
    let (code, message) = cluster.world.run(&taken).error(1);
    assert!(code == "folder_of_coordinator" && message.contains(&data), "{code}: {message}");
    assert_eq!(join(&[&quic, "LGP1.x.y"]).error(2).0, "usage");
    // An address without a listener, and one that cannot have any.
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let silent = silent.local_addr().expect("bound").to_string();
    for addr in [silent.as_str(), "127.0.0.1:0"] {
        let (code, message) = join(&[addr, token]).error(1);
        assert_eq!(code, "coordinator_unreachable", "{message}");
        assert!(message.contains(&format!("no coordinator answers at {addr}")), "{message}");
    }
    assert_eq!(join(&[&quic, token, "--name", "No Name"]).error(2).0, "usage");
    assert_eq!(join(&[&quic, token, "--name", "local-1"]).error(1).0, "name_taken");
    // The same secret for a cluster with another authority: refused before it is sent.
    let other = "0".repeat(64);
    parts[1] = &other;
    assert_eq!(join(&[&quic, &parts.join(".")]).error(1).0, "wrong_cluster");
    assert_eq!(cluster.run(&["token", "ls"]).json()[0]["uses_left"], json!(2), "nothing was used");

    // A token for clients does not make workers.
    let client = cluster.run(&["token", "create", "--role", "client"]).json();
    assert_eq!(client["role"], "client");
    assert_eq!(join(&[&quic, text(&client["token"])]).error(1).0, "token_role");
    assert_eq!(cluster.run(&["token", "ls"]).json()[1]["uses_left"], json!(1));
    assert_eq!(cluster.run(&["token", "create", "--role", "king"]).error(2).0, "usage");

    let id = text(&made["id"]);
    assert_eq!(cluster.run(&["token", "revoke", id]).json()["revoked"], json!(true));
    assert_eq!(cluster.run(&["token", "revoke", id]).error(1).0, "unknown_token");
    assert_eq!(join(&[&quic, token]).error(1).0, "token_unknown");
    assert_eq!(cluster.run(&["token", "create", "--ttl", "soon"]).error(2).0, "usage");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

/// Other accounts can read the command lines of living processes.
#[test]
fn a_token_comes_from_elsewhere_and_does_not_stay_on_the_command_line() {
    let cluster = Cluster::start(World::new(), "0");
    let quic = text(&cluster.endpoint["quic"]).to_owned();
    let made = cluster.run(&["token", "create", "--uses", "3"]).json();
    let token = text(&made["token"]).to_owned();
    let file = cluster.world.write("token", format!("{token}\n")).display().to_string();
    let folder = |name: &str| cluster.world.path(name).display().to_string();
    let (first, second) = (folder("first"), folder("second"));
    for args in [
        [quic.as_str(), &token, "--data", &first, "--name", "first", ""],
        [quic.as_str(), "--token-file", &file, "--data", &second, "--name", "second"],
    ] {
        let args: Vec<&str> = args.into_iter().filter(|arg| !arg.is_empty()).collect();
        let joined = Joined::start(&cluster.world, &args);
        assert_eq!(joined.said["enrolled"], json!(true));
        let line =
            std::fs::read(format!("/proc/{}/cmdline", joined.process.id())).expect("it runs");
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(line.contains("join") && !line.contains(&token), "{line}");
        joined.leave();
    }
    let both = ["join", &quic, &token, "--token-file", &file, "--json"];
    assert_eq!(cluster.world.run(&both).error(2).0, "usage");
    cluster.run(&["stop"]).json();
}

#[test]
fn a_machine_that_is_revoked_leaves_and_comes_back_with_a_new_token_only() {
    let cluster = Cluster::start(World::new(), "0");
    let quic = text(&cluster.endpoint["quic"]).to_owned();
    let folder = cluster.world.path("far").display().to_string();
    let token =
        |cluster: &Cluster| text(&cluster.run(&["token", "create"]).json()["token"]).to_owned();
    let args = |token: &str| [&quic, token, "--data", &folder, "--name", "far"].map(str::to_owned);
    let first = args(&token(&cluster));
    let joined = Joined::start(&cluster.world, &first.each_ref().map(String::as_str));
    eventually("the worker is ready", || cluster.workers("ready").len() == 1);
    let revoked = cluster.run(&["workers", "revoke", "far"]).json();
    assert_eq!(revoked["connections_closed"], json!(1));
    assert_eq!(cluster.run(&["workers", "revoked"]).json()[0]["name"], json!("far"));
    let output = harness::output(joined.process);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("certificate_revoked"), "{said}");

    let none = ["join", &quic, "--data", &folder, "--name", "far", "--json", "--device", "cpu"];
    assert_eq!(cluster.world.run(&none).error(1).0, "token_missing");
    // The join waits, if need be, until the second of the revocation is over.
    let second = args(&token(&cluster));
    let joined = Joined::start(&cluster.world, &second.each_ref().map(String::as_str));
    eventually("the worker is back", || cluster.workers("ready").len() == 1);
    joined.leave();

    // A machine that was revoked while off notices on its return, and uses its new token at once.
    cluster.run(&["workers", "revoke", "far"]).json();
    let third = args(&token(&cluster));
    let joined = Joined::start(&cluster.world, &third.each_ref().map(String::as_str));
    assert_eq!(joined.said["enrolled"], json!(false), "it came as who it was");
    eventually("the worker is back again", || cluster.workers("ready").len() == 1);
    assert_eq!(cluster.run(&["token", "ls"]).json()[2]["state"], json!("used_up"));
    joined.leave();
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn a_machine_that_was_away_comes_back_without_a_token() {
    let world = World::new();
    std::fs::create_dir(world.path("data")).expect("the folder is ours");
    let allow = |world: &World, absence_max_s: u32| {
        let text = format!("[quic]\ncertificate_life_s = 3\nabsence_max_s = {absence_max_s}\n");
        world.write("data/radeon-cluster.toml", text);
    };
    allow(&world, 3600);
    let cluster = Cluster::start(world, "0");
    let quic = text(&cluster.endpoint["quic"]).to_owned();
    let token = text(&cluster.run(&["token", "create"]).json()["token"]).to_owned();
    let folder = cluster.world.path("far").display().to_string();
    let joined = Joined::start(&cluster.world, &[&quic, &token, "--data", &folder]);
    eventually("the worker is ready", || cluster.workers("ready").len() == 1);
    joined.leave();
    cluster.run(&["stop"]).json();
    // Both are off until the certificate has expired, however lately it was renewed.
    std::thread::sleep(Duration::from_secs(4));

    let cluster = Cluster::start(cluster.world, "0");
    let quic = text(&cluster.endpoint["quic"]).to_owned();
    let joined = Joined::start(&cluster.world, &[&quic, "--data", &folder]);
    let (enrolled, expires_s) = (&joined.said["enrolled"], joined.said["expires_s"].as_u64());
    let now_s = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    assert!(expires_s.is_some_and(|at| at < now_s), "it had not expired: {}", joined.said);
    assert_eq!(enrolled, &json!(false));
    eventually("the worker is back", || cluster.workers("ready").len() == 1);
    assert_eq!(submit_zero(&cluster), 0);
    joined.leave();

    // A machine away for too long is told what to do, and joins anew with a token.
    cluster.run(&["stop"]).json();
    allow(&cluster.world, 0);
    std::thread::sleep(Duration::from_secs(5));
    let cluster = Cluster::start(cluster.world, "0");
    let quic = text(&cluster.endpoint["quic"]).to_owned();
    let joined = Joined::start(&cluster.world, &[&quic, "--data", &folder]);
    let output = harness::output(joined.process);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("certificate_expired") && said.contains("token create"), "{said}");
    let token = text(&cluster.run(&["token", "create"]).json()["token"]).to_owned();
    let joined = Joined::start(&cluster.world, &[&quic, &token, "--data", &folder]);
    eventually("the worker is back again", || cluster.workers("ready").len() == 1);
    joined.leave();
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn a_machine_finds_the_coordinator_by_its_token() {
    if let Err(error) = multicast_works() {
        return println!("skipped: multicast: {error}");
    }
    let world = World::new();
    let data = world.path("data").display().to_string();
    let any = "127.0.0.1:0";
    let start = [
        "start",
        "--json",
        "--data",
        &data,
        "--http",
        any,
        "--grpc",
        any,
        "--quic",
        any,
        "--workers",
        "0",
    ];
    // Announced on loopback only, where it listens.
    let mut start = world.command(&start);
    let started = start.env("RADEON_QUIC__ADVERTISE", "always").output().expect("it starts");
    let endpoint = serde_json::from_slice(&started.stdout).expect("JSON");
    let cluster = Cluster { world, endpoint };
    let made = cluster.run(&["token", "create"]).json();
    let folder = cluster.world.path("far").display().to_string();
    let args = ["--discover", text(&made["token"]), "--data", &folder, "--name", "far"];
    let joined = Joined::start(&cluster.world, &args);
    assert_eq!(joined.said["coordinator"], cluster.endpoint["quic"]);
    eventually("the worker is ready", || cluster.workers("ready").len() == 1);
    joined.leave();
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

/// Whether a packet to mDNS's group on the loopback comes back.
fn multicast_works() -> std::io::Result<()> {
    let (group, here) = (Ipv4Addr::new(224, 0, 0, 251), Ipv4Addr::LOCALHOST);
    let receiver = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    receiver.join_multicast_v4(&group, &here)?;
    receiver.set_read_timeout(Some(Duration::from_secs(2)))?;
    let sender = UdpSocket::bind((here, 0))?;
    sender.send_to(b"x", (group, receiver.local_addr()?.port()))?;
    receiver.recv(&mut [0; 1]).map(|_| ())
}

#[test]
fn a_damaged_authority_stops_the_start() {
    let cluster = Cluster::start(World::new(), "0");
    cluster.run(&["stop"]).json();
    let authority = cluster.world.path("data/pki/authority.pem");
    std::fs::write(&authority, "-----BEGIN").expect("the folder is ours");
    let (code, message) = crate::harness::start(&cluster.world, &["--workers", "0"]).error(1);
    assert_eq!(code, "file_damaged");
    assert!(message.contains("backup"), "{message}");
    assert_eq!(std::fs::read(&authority).expect("still there"), b"-----BEGIN");
    cluster.world.expect_no_processes();
}
