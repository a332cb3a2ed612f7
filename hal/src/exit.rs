//! The end of a process whose drivers may still compute.

/// Ends the process with `status`, at once: exit handlers and destructors do not run, and nothing is flushed.
///
/// Drivers' libraries free their compilers in exit handlers. A thread that still compiles then, because its caller
/// waited no longer, crashes the process; with PoCL 3.1 a `doctor` that had all its answers ended with a segmentation
/// fault.
///
/// # Example
///
/// ```no_run
/// use std::io::Write;
///
/// print!("done");
/// std::io::stdout().flush()?;
/// lgp_hal::exit(0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn exit(status: u8) -> ! {
    // SAFETY: `_exit` takes any status, touches no memory of the process and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}
