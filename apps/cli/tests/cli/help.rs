//! The output of `--help`, command by command.

use crate::harness::World;

const COMMANDS: [&str; 28] = [
    "demo", "devices", "doctor", "run", "bench", "tune", "profile", "inspect", "plan", "convert",
    "start", "token", "control", "join", "stop", "status", "stats", "scale", "restart", "workers",
    "submit", "result", "tasks", "cancel", "models", "top", "report", "card",
];

#[test]
fn every_command_explains_itself() {
    let world = World::new();
    let overview = world.run(&["--help"]);
    assert_eq!(overview.code, Some(0));
    insta::assert_snapshot!("overview", overview.stdout);
    for command in COMMANDS {
        assert!(overview.stdout.contains(&format!("\n  {command} ")), "{command} is not listed");
        let help = world.run(&[command, "--help"]);
        assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""), "{command}");
        assert!(help.stdout.contains(&format!("Example:\n  radeon-cluster {command}")));
        insta::assert_snapshot!(command, help.stdout);
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let world = World::new();
    for args in [&["--help"][..], &["--version"], &["start", "--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = world.command(args).stdout(full).output().expect("the binary starts");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains("cannot write the result to stdout"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_pipe_gets_no_colours() {
    let world = World::new();
    for args in [&["--help"][..], &["run", "--nope"], &["devices"]] {
        let outcome = world.run(args);
        assert!(!outcome.stdout.contains('\x1b') && !outcome.stderr.contains('\x1b'), "{args:?}");
    }
}
