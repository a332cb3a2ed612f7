//! Clusters that migrate from a data folder to a database and back.

use crate::harness::{World, ZERO, eventually, npy, signal, start};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A PostgreSQL server in a folder of its own.
struct Database {
    folder: tempfile::TempDir,
    child: Child,
    programs: PathBuf,
}

impl Database {
    /// # Errors
    /// When the server cannot be started.
    fn start() -> Result<Self, String> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut programs = versions.map(|version| version.path().join("bin"));
        let programs = programs.find(|it| it.join("initdb").exists()).ok_or("no initdb")?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let own = |program: &str| {
            let mut command = Command::new(programs.join(program));
            if rustix::process::geteuid().is_root() {
                // The server refuses to run as root.
                command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
                command.arg(programs.join(program));
            }
            command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        if rustix::process::geteuid().is_root() {
            let owned = Command::new("chown").arg("postgres").arg(folder.path()).status();
            owned.map_err(|error| error.to_string())?;
        }
        let data = folder.path().join("data");
        let mut initdb = own("initdb");
        initdb.args(["--username=postgres", "--auth=trust", "--no-sync", "-D"]).arg(&data);
        let made = initdb.status().map_err(|error| error.to_string())?;
        if !made.success() {
            return Err("initdb failed".to_owned());
        }
        let mut server = own("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(folder.path());
        let child = server.args(["-c", "listen_addresses="]).spawn();
        let child = child.map_err(|error| error.to_string())?;
        let database = Self { folder, child, programs };
        let end = Instant::now() + Duration::from_secs(60);
        let socket = database.folder.path().join(".s.PGSQL.5432");
        let is_ready = || {
            let mut ready = Command::new(database.programs.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(database.folder.path());
            socket.exists() && ready.status().is_ok_and(|status| status.success())
        };
        while !is_ready() {
            assert!(Instant::now() < end, "it does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(database)
    }

    /// The output of a PostgreSQL client.
    #[track_caller]
    fn client(&self, program: &str, args: &[&str]) -> Vec<u8> {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-h").arg(self.folder.path()).args(["-U", "postgres", "-d", "postgres"]);
        let output = command.args(args).output().expect("the programs are there");
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    fn url(&self) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{folder}/postgres")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server, or why the test is skipped.
macro_rules! database {
    () => {
        match Database::start() {
            Ok(database) => database,
            Err(reason) => return println!("skipped: postgresql: {reason}"),
        }
    };
}

fn text(path: PathBuf) -> String {
    path.display().to_string()
}

#[test]
fn what_makes_no_sense_is_said() {
    let world = World::new();
    let (data, other) = (text(world.path("data")), text(world.path("other")));
    let far = "postgres://u:s3cret@10.0.0.5/x";
    let migrate = ["control", "migrate", "--json", "--data", &data];
    let with = |tail: &[&str]| world.run(&[&migrate[..], tail].concat());
    let (code, message) = with(&["--to", &other]).error(1);
    assert_eq!(code, "no_cluster", "{message}");
    assert_eq!(with(&[]).error(2).0, "usage");
    assert_eq!(with(&["--to", &other, "--undo"]).error(2).0, "usage");
    assert_eq!(world.run(&["control", "show", "--json"]).error(2).0, "usage");
    std::fs::create_dir_all(world.path("data/pki")).expect("ours");
    assert_eq!(with(&["--to", &other]).error(2).0, "usage", "from a folder to a folder");
    assert_eq!(with(&["--to", "-"]).error(2).0, "usage", "the variable is not set");
    for (tail, part) in [
        ("", "10.0.0.5 is reached over the network"),
        ("?sslmode=require", "sslmode=require encrypts, but"),
        ("?sslmode=verify-full&sslrootcert=/none.pem", "sslrootcert names /none.pem"),
    ] {
        let url = format!("{far}{tail}");
        for outcome in
            [with(&["--to", &url]), world.run(&["control", "show", "--json", "--control", &url])]
        {
            let (code, message) = outcome.error(1);
            assert!(code == "control_unusable" || code == "settings_invalid", "{code}");
            assert!(message.contains(part) && !outcome.stderr.contains("s3cret"), "{message}");
        }
    }
}

#[test]
fn a_cluster_goes_to_a_database_and_back() {
    let database = database!();
    let world = World::new();
    let (data, back) = (text(world.path("data")), text(world.path("back")));
    let url = database.url();
    let control = |args: &[&str]| {
        let own = ["--json", "--data", &data];
        world.run(&[&["control"], args, &own[..]].concat())
    };
    let stop = |data: &str| drop(world.run(&["stop", "--json", "--data", data]).json());
    start(&world, &["--workers", "0"]).json();
    let made = world.run(&["token", "create", "--json", "--data", &data]).json();
    let (code, message) = control(&["migrate", "--to", &url]).error(1);
    assert_eq!(code, "already_running", "{message}");
    stop(&data);

    let migrated = control(&["migrate", "--to", &url]).json();
    assert_eq!(migrated["records"], 0);
    assert!(migrated["documents"].as_u64() >= Some(2), "{migrated}");
    let digest = migrated["digest"].as_str().expect("text").to_owned();
    assert_eq!(digest.len(), 64);
    let refused = start(&world, &["--workers", "0"]);
    let (code, message) = refused.error(1);
    assert!(code == "moved" && message.contains("schema radeon_cluster"), "{message}");
    assert!(refused.stderr.contains("control migrate --undo"), "{refused:?}");
    // The settings may already name the target; a finished migration is repeated without effect.
    let again = control(&["migrate", "--to", &url, "--control", &url]).json();
    assert_eq!(again["digest"], digest.as_str());
    start(&world, &["--workers", "0", "--control", &url]).json();
    let tokens = world.run(&["token", "ls", "--json", "--data", &data]).json();
    assert_eq!(tokens[0]["id"], made["id"]);
    let shown = control(&["show", "--control", &url]).json();
    assert_eq!(shown["coordinators"][0]["leads"], true);
    assert!(shown["closed"].is_null(), "{shown}");
    assert_eq!(shown["cluster"].as_str().expect("text").len(), 64);
    let people = world.run(&["control", "show", "--control", &url]);
    assert!(people.stdout.contains("\nleads    "), "{people:?}");
    stop(&data);

    let there = control(&["migrate", "--to", &back, "--control", &url]).json();
    assert_eq!(there["documents"], migrated["documents"]);
    let shown = control(&["show", "--control", &url]).json();
    assert!(shown["closed"].as_str().expect("text").contains("was moved to"), "{shown}");
    let (code, _) = start(&world, &["--workers", "0", "--control", &url]).error(1);
    assert_eq!(code, "moved");
    let any = "127.0.0.1:0";
    let own = ["start", "--json", "--data", &back, "--workers", "0", "--http", any];
    world.run(&[&own[..], &["--grpc", any, "--quic", any]].concat()).json();
    let tokens = world.run(&["token", "ls", "--json", "--data", &back]).json();
    assert_eq!(tokens[0]["id"], made["id"]);
    stop(&back);
    let undone = control(&["migrate", "--undo", "--control", &url]).json();
    assert!(undone["moved_to"].as_str().expect("text").contains("back"), "{undone}");
    world.expect_no_processes();
}

/// Submits durable tasks, which wait because there is no worker.
fn submit(world: &World, data: &str, count: usize) {
    let image = text(world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)));
    for number in 0..count {
        let key = number.to_string();
        let task = ["submit", "--model", "digits", "--input", &image, "--durable", "--key", &key];
        world.run(&[&task[..], &["--json", "--data", data]].concat()).json();
    }
}

#[test]
fn a_migration_that_is_killed_goes_on() {
    let database = database!();
    let world = World::new();
    let data = text(world.path("data"));
    let url = database.url();
    start(&world, &["--workers", "0"]).json();
    submit(&world, &data, 40);
    world.run(&["stop", "--json", "--data", &data]).json();
    let migrate = ["control", "migrate", "--json", "--data", &data, "--to", &url];
    // Each migration runs a third longer, until one ends before it is killed.
    let mut time = Duration::from_millis(10);
    let killed = (1..).find(|_| {
        let mut child = world.spawn(&migrate);
        std::thread::sleep(time);
        time += time / 3;
        assert!(time < Duration::from_secs(60), "it never ends");
        let ended = child.try_wait().expect("a child").is_some();
        signal(child.id(), Signal::KILL);
        child.wait().expect("a child");
        ended
    });
    assert!(killed > Some(3), "it was never killed at work: {killed:?}");
    let moved = world.run(&migrate).json();
    assert_eq!(moved["records"], 40, "{moved}");
    start(&world, &["--workers", "1", "--control", &url]).json();
    let done = ["tasks", "--json", "--state", "succeeded", "--data", &data];
    eventually("each of them runs", || {
        world.run(&done).json().as_array().is_some_and(|tasks| tasks.len() == 40)
    });
    world.run(&["stop", "--json", "--data", &data]).json();
}

#[test]
fn a_backup_that_is_restored_is_known_to_be_older() {
    let database = database!();
    let world = World::new();
    let data = text(world.path("data"));
    let url = database.url();
    let control = ["--workers", "0", "--control", &url];
    let stop = || drop(world.run(&["stop", "--json", "--data", &data]).json());
    start(&world, &control).json();
    submit(&world, &data, 3);
    let backup = database.client("pg_dump", &["--schema=radeon_cluster"]);
    submit(&world, &data, 5);
    stop();
    database.client("psql", &["-qc", "DROP SCHEMA radeon_cluster CASCADE"]);
    let file = text(world.write("backup.sql", backup));
    database.client("psql", &["-qf", &file]);

    // The leader at the time of the backup leads for one more lease.
    std::thread::sleep(Duration::from_secs(3));
    let (code, message) = start(&world, &control).error(1);
    let remembered = world.path("data/tasks.journal.last");
    assert!(message.contains(&text(remembered.clone())), "{code}: {message}");
    std::fs::remove_file(remembered).expect("it is there");
    start(&world, &control).json();
    let tasks = world.run(&["tasks", "--json", "--data", &data]).json();
    assert_eq!(tasks.as_array().map(Vec::len), Some(3), "those of the backup");
    // The keys of lost tasks are free again.
    submit(&world, &data, 5);
    stop();
}
