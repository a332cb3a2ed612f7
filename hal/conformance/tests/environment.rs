//! Hosts with missing, broken or misnamed driver libraries: reasons, never a panic. Each case is a
//! process of its own, because a library stays loaded.

use std::path::Path;
use std::process::{Command, Output};

fn laws(args: &[&str], environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lgp-hal-conformance"));
    command.args(args).envs(environment.iter().copied());
    command.output().expect("the program starts")
}

#[test]
fn broken_driver_libraries_have_reasons() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["libOpenCL.so.1", "libvulkan.so.1", "libcuda.so.1", "libcuda.so"] {
        std::fs::write(folder.path().join(name), "no library").expect("a file");
    }
    let nowhere = Path::new("/nonexistent/lib.so");
    let (no_library, text) = (folder.path(), folder.path().join("libcuda.so"));
    let (no_opencl, no_vulkan) = (("OCL_ICD_VENDORS", nowhere), ("VK_ICD_FILENAMES", nowhere));
    // The other backend's driver is away, to save time.
    for environment in [
        // The bindings fall back to the system's library.
        [("OPENCL_DYLIB_PATH", nowhere), no_vulkan],
        [("OPENCL_DYLIB_PATH", text.as_path()), no_vulkan],
        // A library, but not the OpenCL library.
        [("OPENCL_DYLIB_PATH", Path::new("libc.so.6")), no_vulkan],
        [no_opencl, no_vulkan],
        [no_opencl, ("VK_ICD_FILENAMES", text.as_path())],
        [no_opencl, ("LD_LIBRARY_PATH", no_library)],
    ] {
        let output = laws(&[], &environment);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{environment:?}: {out}{err}");
        assert!(out.trim_end().ends_with(" skipped"), "{environment:?}: {out}");
        assert!(!err.contains("panicked"), "{environment:?}: {err}");
    }
}

#[test]
fn two_devices_of_one_process_keep_apart() {
    let no_vulkan = ("VK_ICD_FILENAMES", Path::new("/nonexistent"));
    let output = laws(&[], &[("POCL_DEVICES", Path::new("pthread pthread")), no_vulkan]);
    let out = String::from_utf8_lossy(&output.stdout);
    let verdict = |id: &str| {
        let line = format!("{id}: devices do not disturb each other … ");
        out.lines().find_map(|it| it.strip_prefix(&line))
    };
    // Without PoCL the number of devices differs.
    if let Some(reason) = ["opencl:0", "opencl:1"].into_iter().find_map(|id| {
        verdict(id).map_or(Some("no such device"), |it| it.strip_prefix("skipped: "))
    }) {
        println!("skipped: pocl: {reason}");
        return;
    }
    assert!(output.status.success(), "{out}");
    assert_eq!([verdict("opencl:0"), verdict("opencl:1")], [Some("ok"); 2], "{out}");
}

#[test]
fn absence_of_a_required_backend_fails() {
    let nowhere = Path::new("/nonexistent");
    let no_devices = [("OCL_ICD_VENDORS", nowhere), ("VK_ICD_FILENAMES", nowhere)];
    let output = laws(&["--require", "opencl"], &no_devices);
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.contains("opencl:0: all laws … FAILED: required, but"), "{out}");
}

#[test]
fn a_faulty_command_line_is_a_usage_error() {
    for args in [&["--nope"] as &[&str], &["--require"], &["--require", "metal"]] {
        assert_eq!(laws(args, &[]).status.code(), Some(2), "{args:?}");
    }
}
