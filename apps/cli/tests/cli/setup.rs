//! One-time setup: the settings file, completions, the log and the page.

use crate::harness::{Cluster, World, eventually, signal};
use rustix::process::Signal;

#[test]
fn a_settings_file_is_written_once_and_start_reads_it() {
    let world = World::new();
    let file = world.path("data/radeon-cluster.toml");
    let data = world.path("data").display().to_string();
    let written = world.run(&["init", "--json", "--data", &data]).json();
    assert_eq!(written["file"], file.display().to_string());
    let (code, message) = world.run(&["init", "--json", "--data", &data]).error(1);
    assert!(code == "file_exists" && message.contains("is there already"), "{code} {message}");
    world.run(&["init", "--json", "--force", "--data", &data]).json();
    // One line of the file is enabled.
    let text = std::fs::read_to_string(&file).expect("written");
    std::fs::write(&file, text.replace("#batch_max = 1", "batch_max = 7")).expect("ours");
    let cluster = Cluster::start(world, "0");
    std::fs::write(&file, "batch_max = 0\n").expect("ours");
    cluster.run(&["stop"]).json();
    let (code, message) = crate::harness::start(&cluster.world, &[]).error(1);
    assert!(code == "settings_invalid" && message.contains("batch_max"), "{code} {message}");
    let elsewhere = cluster.world.path("no/such/folder/file.toml").display().to_string();
    cluster.world.run(&["init", "--json", &elsewhere]).error(1);
    let here = cluster.world.run(&["init", "--json", "here.toml"]).json();
    assert!(cluster.world.path("here.toml").exists(), "{here}");
}

#[test]
fn shells_are_told_what_to_complete() {
    let world = World::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let told = world.run(&["completions", "--json", shell]).json();
        let script = told["script"].as_str().expect("a text");
        assert!(script.contains("radeon-cluster") && script.contains("dashboard"), "{shell}");
        assert_eq!(world.run(&["completions", shell]).stdout, script);
    }
    world.run(&["completions", "--json", "cmd"]).error(2);
}

#[test]
fn every_command_has_a_manual_page() {
    let world = World::new();
    let folder = world.path("man").display().to_string();
    assert_eq!(world.run(&["manual", "--json", &folder]).json()["folder"], folder);
    let read = |name: &str| std::fs::read_to_string(world.path("man").join(name)).expect(name);
    let overview = read("radeon-cluster.1");
    for command in ["demo", "start", "join", "token", "models"] {
        assert!(overview.contains(&format!("radeon\\-cluster\\-{command}(1)")), "{command}");
        assert!(read(&format!("radeon-cluster-{command}.1")).contains("Example:"), "{command}");
    }
    assert!(read("radeon-cluster-token-create.1").contains("How many machines may join"));
    assert!(!world.path("man/radeon-cluster-worker.1").exists(), "nobody types it");
    let file = world.write("file", "");
    world.run(&["manual", "--json", &file.join("man").display().to_string()]).error(1);
}

#[test]
fn the_log_is_shown_also_when_nothing_runs_any_more() {
    let world = World::new();
    let data = world.path("data").display().to_string();
    let (code, _) = world.run(&["logs", "--json", "--data", &data]).error(1);
    assert_eq!(code, "not_running");
    let cluster = Cluster::start(world, "1");
    let lines = |flags: &[&str]| cluster.run(&[&["logs"], flags].concat()).json();
    eventually("the worker logs", || {
        !lines(&["--contains", "loading"]).as_array().unwrap().is_empty()
    });
    let loading = &lines(&["--contains", "LOADING"])[0];
    assert_eq!((&loading["source"], &loading["level"]), (&"workers".into(), &"info".into()));
    assert_eq!(lines(&["-n", "1"]).as_array().unwrap().len(), 1);
    assert_eq!(lines(&["--level", "error"]), serde_json::json!([]));
    let url = cluster.endpoint["http"].as_str().expect("an address");
    let key = cluster.key_file();
    let there = ["logs", "--json", "--server", url, "--key-file", &key, "--contains", "loading"];
    assert_eq!(cluster.world.run(&there).json()[0], *loading);
    cluster.run(&["logs", "--level", "loud"]).error(2);
    cluster.run(&["stop"]).json();
    assert!(!lines(&["--contains", "loading"]).as_array().unwrap().is_empty(), "it is kept");
}

#[test]
fn news_of_the_log_are_followed_line_by_line() {
    let cluster = Cluster::start(World::new(), "1");
    let data = cluster.endpoint["data"].as_str().expect("a path");
    let mut follower = cluster.world.spawn(&["logs", "--json", "--follow", "--data", data]);
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().expect("piped")));
    let mut until = |part: &str| {
        lines.by_ref().map(|line| line.expect("text")).find(|line| line.contains(part)).expect(part)
    };
    until("worker joined");
    cluster.run(&["keys", "create", "--role", "infer"]).json();
    let line: serde_json::Value =
        serde_json::from_str(&until("an API key was made")).expect("JSON");
    assert_eq!(line["level"], "info");
    follower.kill().expect("ours");
    follower.wait().expect("ours");
}

#[test]
fn a_link_to_the_page_is_printed_where_there_is_no_desktop() {
    let cluster = Cluster::start(World::new(), "0");
    let made = cluster.run(&["dashboard"]).json();
    let url = made["url"].as_str().expect("an address");
    let http = cluster.endpoint["http"].as_str().expect("an address");
    assert!(url.starts_with(&format!("{http}/#link=lgp_link_")), "{url}");
    assert_eq!(made["opened"], false);
    let data = cluster.endpoint["data"].as_str().expect("a path");
    let mut command = cluster.world.command(&["dashboard", "--data", data]);
    let shown =
        command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").output().expect("it runs");
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains("signs in once") && shown.contains("/#link="), "{shown}");
    // Programs of this machine without a key may not let themselves in.
    cluster.world.run(&["dashboard", "--json", "--server", http]).error(1);
}

#[test]
fn a_plain_start_is_as_the_last_one_was() {
    let world = World::new();
    let data = world.path("data").display().to_string();
    let start = |world: &World, flags: &[&str]| {
        let mut command = world.command(&[&["start", "--data", &data], flags].concat());
        for name in ["HTTP", "GRPC", "QUIC"] {
            command.env(format!("RADEON_{name}__ADDR"), "localhost:0");
        }
        let output = command.env("RADEON_WORKRES", "3").output().expect("the binary starts");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        stderr
    };
    let workers = |world: &World| {
        let settings = world.run(&["status", "--json", "--data", &data]).json();
        (settings["workers"]["ready"].as_u64(), settings["pid"].as_u64().expect("a number"))
    };
    let kill = |world: &World, pid: u64| {
        signal(u32::try_from(pid).expect("a process id"), Signal::KILL);
        world.expect_no_processes();
    };
    let said = start(&world, &["--workers", "0", "--log-format", "json"]);
    assert!(said.contains("RADEON_WORKRES is no setting; did you mean RADEON_WORKERS?"), "{said}");
    let (ready, pid) = workers(&world);
    assert_eq!(ready, Some(0));
    assert!(said.contains("nothing computes until one joins"), "{said}");
    kill(&world, pid);
    let said = start(&world, &[]);
    assert!(said.contains("as it was last started: --log-format json --workers 0;"), "{said}");
    let (ready, pid) = workers(&world);
    assert_eq!(ready, Some(0));
    kill(&world, pid);
    let said = start(&world, &["--fresh"]);
    assert!(!said.contains("last started"), "{said}");
    assert_eq!(workers(&world).0, Some(1));
    world.run(&["stop", "--json", "--now", "--data", &data]).json();
}

#[test]
fn a_wrong_setting_is_told_with_its_place() {
    let world = World::new();
    let run = |name: &str, value: &str| {
        let output = world.command(&["start", "--json"]).env(name, value).output();
        String::from_utf8(output.expect("the binary starts").stderr).expect("text")
    };
    for (name, value, part) in [
        ("RADEON_WORKERS", "many", "environment variable RADEON_WORKERS"),
        ("RADEON_WORKERS", "many", "expected a whole number"),
        ("RADEON_HTTP__ADDR", "nowhere", "'nowhere' is not an address"),
    ] {
        let said = run(name, value);
        assert!(said.contains(part), "{said} lacks {part}");
    }
    world.write("wrong.toml", "wrokers = 3\n");
    let refused = world.run(&["start", "--json", "--config", "wrong.toml"]);
    assert_eq!(refused.error(1).0, "settings_invalid");
    assert!(refused.stderr.contains("did you mean workers?"), "{refused:?}");
}
