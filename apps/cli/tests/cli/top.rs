//! `top` in a pipe and in a terminal of its own.

use crate::harness::{Cluster, PATIENCE, World, signal};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

#[test]
fn a_pipe_gets_one_look() {
    let world = World::new();
    let data = world.path("data").display().to_string();
    let (code, _) = world.run(&["top", "--json", "--data", &data]).error(1);
    assert_eq!(code, "not_running");
    let cluster = Cluster::start(world, "1");
    let shown = cluster.world.run(&["top", "--data", &data]);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{shown:?}");
    for part in ["workers 1 ready", "digits/1", "p95", "worker joined"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    assert!(!shown.stdout.contains('\x1b'));
    let told = cluster.run(&["top"]).json();
    assert_eq!(told["workers"].as_array().map(Vec::len), Some(1), "{told}");
    assert!(told["history"]["at_s"].is_array() && told["logs"].is_array());
    cluster.run(&["top", "--interval", "0"]).error(2);
}

/// A terminal in which a program runs.
struct Terminal {
    /// The user's end.
    keys: File,
    /// The program's end, whose modes can be read.
    screen: File,
    shown: Receiver<String>,
    text: String,
    child: Child,
}

impl Terminal {
    fn new(world: &World, args: &[&str]) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo terminal");
        grantpt(&keys).expect("ours");
        unlockpt(&keys).expect("ours");
        let name = ptsname(&keys, Vec::new()).expect("it has a name");
        // It must become the program's terminal, not the tests'.
        let screen = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
        let screen = File::from(screen.expect("its other end"));
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&screen, size).expect("ours");
        let binary = world.command(args);
        // `setsid` starts a session with this terminal.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(binary.get_program()).args(binary.get_args());
        for (name, value) in binary.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let end = || screen.try_clone().expect("a handle");
        command.env("TERM", "xterm").current_dir(world.folder.path());
        let child =
            command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("setsid is there");
        let keys = File::from(keys);
        let mut reads = keys.try_clone().expect("a handle");
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reads.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        Self { keys, screen, shown, text: String::new(), child }
    }

    /// Waits until a word is shown after the previous awaited one. Blanks between words need not be sent where the
    /// screen was blank before.
    #[track_caller]
    fn until(&mut self, part: &str) {
        let start = Instant::now();
        while !self.text.contains(part) {
            let left = PATIENCE.saturating_sub(start.elapsed());
            let more = self.shown.recv_timeout(left);
            self.text += &more.unwrap_or_else(|_| panic!("{part} is not in {:?}", self.text));
        }
        self.text.clear();
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes it");
    }

    /// Whether the program gets each key at once, without echo.
    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.screen).expect("ours").local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }
}

#[test]
fn a_terminal_is_used_and_given_back() {
    let cluster = Cluster::start(World::new(), "1");
    let data = cluster.endpoint["data"].as_str().expect("a path");
    let args = ["top", "--interval", "1", "--data", data];
    let mut terminal = Terminal::new(&cluster.world, &args);
    terminal.until("quit");
    assert!(terminal.is_raw());
    terminal.press("\t\t");
    terminal.until("models");
    tcsetwinsize(&terminal.screen, Winsize { ws_row: 10, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 })
        .expect("ours");
    signal(cluster.pid(), Signal::KILL);
    terminal.until("asking");
    terminal.press("q");
    terminal.until("\x1b[?1049l");
    let ended = terminal.child.wait().expect("a child");
    assert_eq!(ended.code(), Some(0));
    assert!(!terminal.is_raw(), "the terminal is as it was");
}

#[test]
fn a_signal_gives_the_terminal_back_too() {
    let cluster = Cluster::start(World::new(), "0");
    let data = cluster.endpoint["data"].as_str().expect("a path");
    let mut terminal = Terminal::new(&cluster.world, &["top", "--data", data]);
    terminal.until("quit");
    let pids = cluster.world.processes().into_iter().filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1).is_some_and(|word| word == b"top")
    });
    pids.for_each(|pid| signal(pid, Signal::TERM));
    terminal.until("\x1b[?1049l");
    assert_eq!(terminal.child.wait().expect("a child").code(), Some(1));
    assert!(!terminal.is_raw());
}
