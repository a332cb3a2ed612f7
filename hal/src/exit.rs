//! The end of a process whose drivers may still compute.

use std::io::Write;

/// Ends the process with `status`, as `std::process::exit` does, but without the exit handlers of loaded libraries.
///
/// Drivers' libraries free their compilers in such handlers. A thread that still compiles then, because its caller
/// waited no longer, crashes the process; with PoCL 3.1 a `doctor` that had all its answers ended with a segmentation
/// fault. Standard output is flushed; destructors do not run.
///
/// # Example
///
/// ```no_run
/// println!("done");
/// lgp_hal::exit(0);
/// ```
pub fn exit(status: u8) -> ! {
    // A closed standard output cannot be helped.
    let _ = std::io::stdout().flush();
    // SAFETY: `_exit` takes any status, touches no memory of the process and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}
