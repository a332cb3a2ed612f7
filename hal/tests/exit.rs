//! `exit` ends a process without the exit handlers of its libraries.

use std::io::Write;
use std::process::Command;

/// Set in the process that ends.
const CHILD: &str = "LGP_TEST_EXIT";

extern "C" fn crash() {
    std::process::abort();
}

#[test]
fn a_process_ends_without_the_handlers_of_libraries_and_with_its_output() {
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: the handler is a function of this program, and it uses nothing that has ended by then.
        assert_eq!(unsafe { libc::atexit(crash) }, 0);
        // No line's end: the text is still in the buffer.
        write!(std::io::stdout(), "an answer").expect("a pipe");
        lgp_hal::exit(3);
    }
    let program = std::env::current_exe().expect("the test's own path");
    let output = Command::new(program).env(CHILD, "1").output().expect("it starts");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("an answer"), "{output:?}");
}
