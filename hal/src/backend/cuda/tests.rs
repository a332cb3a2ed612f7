//! The backend over libraries of the tests' own, which are compiled from `hal/tests/cuda` and
//! loaded in a process of their own: no card and none of NVIDIA's libraries are needed.

mod fake;
mod losses;

use super::*;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::gemm::{Gemm, Matrix};
use crate::program::{Arg, Launch, Program};
use crate::queue::Queue;
use fake::{CUBLAS, DRIVER, Fake, NVRTC, log, process};

/// The first device, without the self-test: these libraries calculate nothing.
fn open() -> Arc<dyn Device> {
    Cuda.open(0).expect("the tests' driver has a device")
}

/// The reason why there is no device.
fn reason() -> String {
    let missing = Cuda.probe().missing.expect("no device is found");
    missing.reason().to_owned()
}

fn touch(queue: &mut dyn Queue, program: &dyn Program, buffer: &dyn Buffer) {
    let args = [Arg::Buffer(buffer), Arg::U32(42)];
    let (global, local) = ([1; 3], Some([1; 3]));
    let launch = Launch { program, kernel: "touch", global, local, args: &args };
    // SAFETY: the kernel writes one byte of its buffer.
    unsafe { queue.launch(&launch) }.expect("a driver takes a launch before it fails");
}

/// The product of two numbers.
fn product<'a>(a: &'a dyn Buffer, b: &'a dyn Buffer, c: &'a dyn Buffer) -> Gemm<'a> {
    let matrix = |buffer| Matrix { buffer, row_stride: 1, batch_stride: 0 };
    Gemm {
        m: 1,
        n: 1,
        k: 1,
        batch: 1,
        a: matrix(a),
        b: matrix(b),
        c: matrix(c),
        transpose_a: false,
        transpose_b: false,
        alpha: 1.0,
        beta: 0.0,
    }
}

#[test]
fn every_command_of_a_queue_reaches_the_driver() {
    let fakes = [
        Fake::new(DRIVER, "libcuda.so.1", &[]),
        Fake::new(NVRTC, "libnvrtc.so.12", &["MAJOR=12", "MINOR=9", "ARCHITECTURES=50,61"]),
    ];
    process("every_command_of_a_queue_reaches_the_driver", &fakes, || {
        let device = open();
        assert_eq!((device.name(), device.free_bytes()), ("device of the tests", Some(1 << 29)));
        let program = device.compile("", "").expect("it compiles");
        let mut queue = device.timed_queue().expect("a queue");
        let buffer = device.allocate(1024).expect("a buffer");
        let part = Arc::clone(&buffer).slice(512, 512).expect("a slice");
        queue.write(&*buffer, 0, &[7; 1024]).expect("a write");
        let began = queue.record().expect("an event");
        touch(&mut *queue, &*program, &*part);
        queue.copy(&*buffer, 510, &*buffer, 0, 4).expect("a copy");
        let block = device.pinned(4).expect("a block");
        let read = queue.read_async(&*buffer, 0, block, 4).expect("a read");
        let block = read.wait().expect("it is done");
        assert_eq!(block[..], [7, 7, 42, 7]);
        let write = queue.write_async(&*buffer, 100, block, 4).expect("a write");
        write.wait().expect("it is done");
        let mut bytes = [0; 6];
        queue.read(&*buffer, 99, &mut bytes).expect("a read");
        assert_eq!(bytes, [7, 7, 7, 42, 7, 7]);
        let ended = queue.record().expect("an event");
        queue.wait_for(&*ended).expect("it is of this device");
        assert_eq!([ended.is_done(), ended.is_done()], [Ok(false), Ok(true)]);
        let time = ended.since(&*began).expect("both are recorded");
        assert_eq!(time, Some(std::time::Duration::from_micros(1500)));
        drop((program, part, buffer, began, ended, queue, device));
        let calls = log();
        for (makes, ends) in [
            ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"),
            ("cuStreamCreate", "cuStreamDestroy_v2"),
            ("cuMemAlloc_v2", "cuMemFree_v2"),
            ("cuMemHostAlloc", "cuMemFreeHost"),
            ("cuModuleLoadData", "cuModuleUnload"),
            ("cuEventCreate", "cuEventDestroy_v2"),
        ] {
            let count = |name: &str| calls.iter().filter(|call| *call == name).count();
            assert!(count(makes) > 0 && count(makes) == count(ends), "{makes}: {calls:?}");
        }
    });
}

#[test]
fn a_function_that_the_driver_lacks_is_named_before_any_call() {
    for name in ["cuMemGetInfo_v2", "cuLaunchKernel", "cuGetErrorName", "cuEventElapsedTime"] {
        let hidden = format!("{name}=hidden");
        let defines = [hidden.as_str()];
        let fakes = [Fake::new(DRIVER, "libcuda.so.1", &defines)];
        process("a_function_that_the_driver_lacks_is_named_before_any_call", &fakes, || {
            let lacking = std::env::var(fake::DETAIL).expect("the first definition");
            let name = lacking.trim_end_matches("=hidden");
            assert_eq!(reason(), format!("the NVIDIA driver is too old: it has no {name}"));
            assert_eq!(log(), [""; 0]);
        });
    }
}

/// The bindings' own functions load libraries by other names and panic where one lacks a function.
#[test]
fn no_function_of_the_bindings_is_called() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/backend");
    let mut files = vec![folder.join("cuda.rs")];
    for folder in [folder.join("cuda"), folder.join("cuda/blas")] {
        let entries = std::fs::read_dir(folder).expect("a folder of the backend");
        files.extend(entries.map(|entry| entry.expect("readable").path()));
    }
    let mut read = 0;
    for file in files.iter().filter(|it| it.extension().is_some_and(|it| it == "rs")) {
        let text = std::fs::read_to_string(file).expect("a source");
        if file.ends_with("tests.rs") {
            continue;
        }
        read += 1;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.contains("//")) {
            let at = format!("{}:{}: {line}", file.display(), at + 1);
            // Types and constants may be imported; the check of the table is no call.
            let of_bindings = line.matches("cudarc::").count();
            assert_eq!(line.matches("::sys::").count(), of_bindings, "{at}");
            let is_check = line.contains("sys::$name;") || line.contains("sys::$status");
            let in_import = line.trim_start().starts_with("use ");
            assert!(!line.contains("sys::") || is_check || in_import, "{at}");
        }
    }
    assert!(read > 10, "{read} files");
}

#[test]
fn a_library_for_linking_is_passed_over_for_the_driver() {
    let fakes = [
        Fake::new(DRIVER, "stubs/libcuda.so", &["INIT=34"]),
        Fake::new(DRIVER, "real/libcuda.so.1", &[]),
    ];
    process("a_library_for_linking_is_passed_over_for_the_driver", &fakes, || {
        assert_eq!(Cuda.probe().found.len(), 1);
    });
}

#[test]
fn a_library_for_linking_is_no_driver() {
    let fakes = [Fake::new(DRIVER, "stubs/libcuda.so", &["INIT=34"])];
    process("a_library_for_linking_is_no_driver", &fakes, || {
        let reason = reason();
        assert!(reason.contains("/stubs/libcuda.so is CUDA's library for linking"), "{reason}");
    });
}

#[test]
fn libraries_of_cuda_13_are_found_by_their_version() {
    let fakes = [
        Fake::new(DRIVER, "libcuda.so.1", &["VERSION=13000", "CAPABILITY=75"]),
        Fake::new(NVRTC, "libnvrtc.so.13", &["MAJOR=13", "MINOR=0", "ARCHITECTURES=75,90"]),
        Fake::new(CUBLAS, "libcublas.so.13", &["MAJOR=13"]),
    ];
    process("libraries_of_cuda_13_are_found_by_their_version", &fakes, || {
        let device = open();
        assert!(device.caps().programs && device.caps().gemm, "{:?}", device.caps());
        device.compile("", "").expect("its code is for the device");
    });
}

#[test]
fn a_card_that_cuda_13_dropped_gets_the_libraries_of_cuda_12() {
    let fakes = [
        Fake::new(DRIVER, "libcuda.so.1", &["VERSION=13000"]),
        Fake::new(NVRTC, "libnvrtc.so.13", &["MAJOR=13", "MINOR=0", "ARCHITECTURES=75,90"]),
        Fake::new(CUBLAS, "libcublas.so.13", &["MAJOR=13"]),
        Fake::new(NVRTC, "libnvrtc.so.12", &["MAJOR=12", "MINOR=9", "ARCHITECTURES=50,61,75"]),
    ];
    process("a_card_that_cuda_13_dropped_gets_the_libraries_of_cuda_12", &fakes, || {
        let device = open();
        assert!(!device.caps().gemm, "there is no cuBLAS of CUDA 12");
        device.compile("", "").expect("its code is for the device");
    });
}

#[test]
fn versions_of_all_libraries_are_told_and_those_that_do_not_fit_are_refused() {
    const CUDA: &str = "CUDA 13.0, NVRTC 12.9";
    // The file has no version in its name.
    for (version, file, driver, fault) in [
        ("MAJOR=12", "libcublas.so", format!("{CUDA}, cuBLAS 12.4.5"), None),
        ("MAJOR=13", "libcublas.so", CUDA.to_owned(), Some("cuBLAS 13.4.5 is not for sm_61")),
        ("MAJOR=14", "other.so", CUDA.to_owned(), Some("(cuBLAS) is not installed")),
    ] {
        let defines = [version];
        let fakes = [
            Fake::new(CUBLAS, file, &defines),
            Fake::new(DRIVER, "libcuda.so.1", &["VERSION=13000"]),
            Fake::new(NVRTC, "libnvrtc.so.12", &["MAJOR=12", "MINOR=9", "ARCHITECTURES=61"]),
        ];
        let test = "versions_of_all_libraries_are_told_and_those_that_do_not_fit_are_refused";
        process(test, &fakes, || {
            if std::env::var(fake::DETAIL).as_deref() != Ok(version) {
                return;
            }
            let Probe { found, faults, .. } = Cuda.probe();
            // The host of the test may have a kernel driver of NVIDIA's.
            let told: Vec<&str> = found[0].caps.driver.split(", ").collect();
            let told: Vec<&str> =
                told.into_iter().filter(|part| !part.starts_with("driver ")).collect();
            assert_eq!(told.join(", "), driver);
            assert_eq!(open().caps(), &found[0].caps, "one card has one description");
            assert_eq!(faults.len(), usize::from(fault.is_some()), "{faults:?}");
            let as_expected = faults.iter().zip(fault).all(|(it, part)| it.reason.contains(part));
            assert!(as_expected, "{faults:?}");
        });
    }
}

#[test]
fn an_older_driver_gets_code_that_it_can_load() {
    let fakes = [
        Fake::new(DRIVER, "libcuda.so.1", &["VERSION=12040"]),
        Fake::new(NVRTC, "libnvrtc.so.12", &["MAJOR=12", "MINOR=9", "ARCHITECTURES=50,61,75"]),
    ];
    process("an_older_driver_gets_code_that_it_can_load", &fakes, || {
        let program = open().compile("", "").expect("machine code of any minor version");
        let binary = program.binary().expect("CUDA's programs have one");
        assert!(binary.ends_with(b"\x7fELF sm_61\0"), "{}", String::from_utf8_lossy(&binary));
    });
}

#[test]
fn an_older_driver_gets_no_ptx_of_a_newer_compiler() {
    let fakes = [
        Fake::new(DRIVER, "libcuda.so.1", &["VERSION=12040", "CAPABILITY=62"]),
        Fake::new(NVRTC, "libnvrtc.so.12", &["MAJOR=12", "MINOR=9", "ARCHITECTURES=50,61,75"]),
    ];
    process("an_older_driver_gets_no_ptx_of_a_newer_compiler", &fakes, || {
        let error = open().compile("", "").expect_err("nothing that the driver could load");
        let Error::Unsupported { what: "programs", reason, .. } = error else {
            panic!("{error}");
        };
        for part in ["NVRTC 12.9", "sm_62", "driver of CUDA 12.4"] {
            assert!(reason.contains(part), "{reason}");
        }
    });
}

#[test]
fn an_older_driver_gets_the_ptx_of_an_older_compiler() {
    let fakes = [
        Fake::new(DRIVER, "libcuda.so.1", &["VERSION=12040", "CAPABILITY=62"]),
        Fake::new(NVRTC, "libnvrtc.so.12", &["MAJOR=12", "MINOR=9", "ARCHITECTURES=50,61,75"]),
        Fake::new(NVRTC, "libnvrtc.so", &["MAJOR=12", "MINOR=2", "ARCHITECTURES=50,61"]),
    ];
    process("an_older_driver_gets_the_ptx_of_an_older_compiler", &fakes, || {
        let program = open().compile("", "").expect("the driver translates it");
        let binary = program.binary().expect("CUDA's programs have one");
        let text = String::from_utf8_lossy(&binary);
        assert!(text.contains(".version 12.2\n// compute_61\n"), "{text}");
    });
}

#[test]
fn a_program_of_another_compiler_is_refused() {
    let fakes = [
        Fake::new(DRIVER, "libcuda.so.1", &[]),
        Fake::new(NVRTC, "libnvrtc.so", &["MAJOR=12", "MINOR=8", "ARCHITECTURES=61"]),
        Fake::new(NVRTC, "newer.so", &["MAJOR=12", "MINOR=9", "ARCHITECTURES=61"]),
    ];
    process("a_program_of_another_compiler_is_refused", &fakes, || {
        let device = open();
        let binary = device.compile("", "").expect("it compiles").binary().expect("it has one");
        // SAFETY: the binary is unchanged.
        let load = |device: &dyn Device| unsafe { device.load(&binary) }.map(drop);
        assert_eq!(load(&*open()), Ok(()), "the same compiler");
        // The host gets a newer compiler.
        let folder = std::env::var("LD_LIBRARY_PATH").expect("of one folder");
        let [from, to] = ["newer.so", "libnvrtc.so.12"].map(|it| format!("{folder}/{it}"));
        std::fs::rename(from, to).expect("both are in one folder");
        let error = load(&*open()).expect_err("another compiler made it");
        assert!(matches!(error, Error::Binary { .. }), "{error}");
    });
}

#[test]
fn a_prepared_queue_makes_nothing_for_its_first_product() {
    let fakes = [Fake::new(DRIVER, "libcuda.so.1", &[]), Fake::new(CUBLAS, "libcublas.so.12", &[])];
    process("a_prepared_queue_makes_nothing_for_its_first_product", &fakes, || {
        let device = open();
        let blas = device.blas().expect("the library is there");
        let mut queue = device.queue().expect("a queue");
        let buffer = || device.allocate(4).expect("a buffer");
        let (a, b, c) = (buffer(), buffer(), buffer());
        let of_library = || {
            let calls = log();
            calls.into_iter().filter(|call| call.starts_with("cublas")).collect::<Vec<_>>()
        };
        let prepared = ["cublasCreate_v2", "cublasSetStream_v2"];
        blas.prepare(&mut *queue).expect("it is of this device");
        blas.prepare(&mut *queue).expect("it may be asked twice");
        assert_eq!(of_library(), prepared);
        blas.gemm(&mut *queue, &product(&*a, &*b, &*c)).expect("it fits");
        assert_eq!(of_library(), [&prepared[..], &["cublasSgemmStridedBatched"]].concat());
    });
}
