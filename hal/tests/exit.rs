//! `exit` ends a process without the exit handlers of its libraries.

use std::io::Write;
use std::process::Command;

/// Set in the process that ends.
const CHILD: &str = "LGP_TEST_EXIT";

extern "C" fn crash() {
    std::process::abort();
}

#[test]
fn a_process_ends_without_the_handlers_of_libraries_and_waits_for_no_thread() {
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: the handler is a function of this program, and it uses nothing that has ended by then.
        assert_eq!(unsafe { libc::atexit(crash) }, 0);
        let (held, is_held) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut stdout = std::io::stdout().lock();
            write!(stdout, "an answer").and_then(|()| stdout.flush()).expect("a pipe");
            held.send(()).expect("it is awaited");
            std::thread::sleep(std::time::Duration::from_secs(600));
        });
        is_held.recv().expect("the thread works");
        lgp_hal::exit(3);
    }
    let program = std::env::current_exe().expect("the test's own path");
    let output = Command::new(program).env(CHILD, "1").output().expect("it starts");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("an answer"), "{output:?}");
}
