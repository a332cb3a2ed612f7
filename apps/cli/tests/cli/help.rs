//! What `--help` says, command by command.

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
fn a_pipe_gets_no_colours() {
    let world = World::new();
    for args in [&["--help"][..], &["run", "--nope"], &["devices"]] {
        let outcome = world.run(args);
        assert!(!outcome.stdout.contains('\x1b') && !outcome.stderr.contains('\x1b'), "{args:?}");
    }
}
