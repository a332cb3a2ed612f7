//! The contents of a report, and what it must not contain.

use crate::doctor;
use crate::harness::{Cluster, World};

/// Secrets that are planted where a report looks, and must not appear in it.
const SECRETS: [&str; 8] = [
    "lgp_planted_0123456789abcdef0123456789abcdef",
    "LGP1.00aa11bb22cc33dd.44ee55ff66",
    "hunter2-password",
    "planted.bearer.value",
    "MIIplantedprivatekey",
    "planted-account",
    "AKIAPLANTEDPLANTED12",
    "planted-key-of-the-folder",
];

/// A data folder and an environment full of secrets.
fn plant(world: &World) -> String {
    let data = world.path("home/planted-account/data");
    std::fs::create_dir_all(&data).expect("ours");
    let [key, token, password, bearer, pem, account, aws, own] = SECRETS;
    let log = format!(
        "2026-01-02T03:04:05.678901Z  INFO a: joined with {token} and {key}\n\
         2026-01-02T03:04:06.678901Z  WARN a: postgres://joe:{password}@db/x, Authorization: Bearer {bearer}\n\
         2026-01-02T03:04:07.678901Z  WARN a: -----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n\
         2026-01-02T03:04:08.678901Z  WARN a: /home/{account}/x of {account}, {aws}, a line that stays\n"
    );
    std::fs::write(data.join("coordinator.log"), log).expect("ours");
    std::fs::write(data.join("local.key"), own).expect("ours");
    let settings = format!("control = \"postgres://joe:{password}@db/x\"\n");
    std::fs::write(data.join("radeon-cluster.toml"), settings).expect("ours");
    data.display().to_string()
}

fn run(world: &World, args: &[&str]) -> crate::harness::Outcome {
    let mut command = world.command(args);
    let [key, .., account, _, _] = SECRETS;
    let output = command
        .env("OCL_ICD_VENDORS", world.path("none"))
        .env("HOME", world.path("home/planted-account"))
        .env("USER", account)
        .env("RADEON_KEY", key)
        .env("RADEON_TEST_NOTE", format!("see {key}"))
        .output()
        .expect("it starts");
    crate::harness::Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

#[test]
fn secrets_that_are_planted_are_not_found_again() {
    let world = World::new();
    let data = plant(&world);
    let wrote = run(&world, &["report", "-o", "r.md", "--data", &data]);
    assert_eq!(wrote.code, Some(0), "{wrote:?}");
    let text = std::fs::read_to_string(world.path("r.md")).expect("written");
    let printed = run(&world, &["report", "--json", "--data", &data]);
    let told = printed.json();
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} in {text}");
        assert!(!printed.stdout.contains(secret), "{secret} in {told:#}");
    }
    for part in
        ["a line that stays", "## Findings", "<summary>devices</summary>", "RADEON_TEST_NOTE"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.len() < 1 << 20);
    assert!(told["file"].is_null() && told["report"]["system"]["kernel"].is_string());
    // An existing file is kept, unless a flag says otherwise.
    let (code, message) =
        run(&world, &["report", "--json", "-o", "r.md", "--data", &data]).error(1);
    assert!(code == "file_exists" && message.contains("r.md"), "{code} {message}");
    let forced =
        run(&world, &["report", "--json", "--force", "-o", "r.md", "--data", &data]).json();
    assert_eq!(forced["file"], "r.md");
}

#[test]
fn a_place_that_takes_no_file_is_told_before_anything_is_gathered() {
    let outcome = World::new().run(&["report", "-o", "none/r.md"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert_eq!(
        outcome.stderr,
        "error: cannot write none/r.md: No such file or directory (os error 2)\n\
         hint: make its folder first: mkdir -p none\n"
    );
}

#[test]
fn a_cluster_is_in_the_report_without_its_keys() {
    let cluster = Cluster::start(World::new(), "1");
    let made = cluster.run(&["keys", "create", "--role", "infer"]).json();
    let token = cluster.run(&["token", "create"]).json();
    let data = cluster.endpoint["data"].as_str().expect("a path");
    let told =
        doctor::run(&cluster.world, &["report", "--json", "-o", "r.md", "--data", data]).json();
    let report = &told["report"]["cluster"];
    assert_eq!(report["workers"].as_array().map(Vec::len), Some(1), "{report:#}");
    assert!(report["config"]["server"].is_object() && report["models"][0]["name"] == "digits");
    let text = std::fs::read_to_string(cluster.world.path("r.md")).expect("written");
    let own = std::fs::read_to_string(cluster.key_file()).expect("made by the coordinator");
    let secrets = [
        own.trim(),
        made["key"].as_str().expect("a key"),
        token["token"].as_str().expect("a token"),
    ];
    for secret in secrets {
        assert!(!text.contains(secret) && !told.to_string().contains(secret), "{secret}");
    }
    assert!(text.contains("cluster: workers"), "{text}");
}
