//! Devices that are lost, wherever the loss is seen first.

use super::fake::{CUBLAS, DETAIL, DRIVER, Fake, NVRTC, log, process};
use super::{Cuda, open, product, touch};
use crate::backend::Backend;
use crate::error::Error;
use std::any::Any;

/// The name of the error that the tests' driver ends a context with.
const CODE: &str = "CUDA_ERROR_ILLEGAL_ADDRESS";

/// Whether the context was released: one that is made anew would hide the loss.
fn released() -> bool {
    log().iter().any(|call| call == "cuDevicePrimaryCtxRelease_v2")
}

#[test]
fn a_lost_device_is_given_up_for_the_life_of_the_process() {
    let fakes = [
        Fake::new(DRIVER, "libcuda.so.1", &["ILLEGAL"]),
        Fake::new(NVRTC, "libnvrtc.so.12", &["MAJOR=12", "MINOR=9", "ARCHITECTURES=61"]),
    ];
    process("losses::a_lost_device_is_given_up_for_the_life_of_the_process", &fakes, || {
        let device = open();
        let program = device.compile("", "").expect("it compiles");
        let mut queue = device.queue().expect("a queue");
        let buffer = device.allocate(4).expect("a buffer");
        touch(&mut *queue, &*program, &*buffer);
        let lost = queue.finish().expect_err("the launch failed");
        assert!(matches!(lost, Error::DeviceLost { .. }), "{lost}");
        let given_up = Some(Error::NeedsRestart { device: device.id(), code: CODE.to_owned() });
        assert_eq!(Cuda.open(0).err(), given_up);
        drop((queue, buffer, program, device));
        assert_eq!(Cuda.open(0).err(), given_up, "though nothing uses the device any more");
        assert!(!released());
    });
}

#[test]
fn a_loss_that_a_drop_sees_first_ends_the_device() {
    for (first, call) in [
        ("FIRST=0", "cuCtxSynchronize"),
        ("FIRST=1", "cuMemFree"),
        ("FIRST=2", "cuEventDestroy"),
        ("FIRST=3", "cuMemFreeHost"),
        ("FIRST=4", "cuStreamDestroy"),
    ] {
        let defines = [first, "ILLEGAL"];
        let fakes = [
            Fake::new(DRIVER, "libcuda.so.1", &defines),
            Fake::new(NVRTC, "libnvrtc.so.12", &["MAJOR=12", "MINOR=9", "ARCHITECTURES=61"]),
        ];
        process("losses::a_loss_that_a_drop_sees_first_ends_the_device", &fakes, || {
            if std::env::var(DETAIL).as_deref() != Ok(first) {
                return;
            }
            let device = open();
            let id = device.id();
            let program = device.compile("", "").expect("it compiles");
            let mut queue = device.queue().expect("a queue");
            let buffer = device.allocate(4).expect("a buffer");
            let event = queue.record().expect("an event");
            let block = device.pinned(4).expect("a block");
            touch(&mut *queue, &*program, &*buffer);
            let mut objects: [Box<dyn Any>; 5] = [
                Box::new(program),
                Box::new(buffer),
                Box::new(event),
                Box::new(block),
                Box::new(queue),
            ];
            objects.rotate_left(first[6..].parse().expect("a number"));
            drop(objects);
            let code = CODE.to_owned();
            let lost = Error::DeviceLost { device: id, call, code: code.clone() };
            assert_eq!(device.allocate(4).map(drop), Err(lost));
            drop(device);
            assert!(!released());
            assert_eq!(Cuda.open(0).err(), Some(Error::NeedsRestart { device: id, code }));
        });
    }
}

#[test]
fn a_failed_product_ends_the_device_if_the_driver_says_so() {
    for end in ["WAIT=700", "WAIT=0"] {
        let defines = [end];
        let fakes = [
            Fake::new(DRIVER, "libcuda.so.1", &defines),
            Fake::new(CUBLAS, "libcublas.so.12", &["PRODUCT=13"]),
        ];
        process("losses::a_failed_product_ends_the_device_if_the_driver_says_so", &fakes, || {
            if std::env::var(DETAIL).as_deref() != Ok(end) {
                return;
            }
            let device = open();
            let blas = device.blas().expect("the library is there");
            let mut queue = device.queue().expect("a queue");
            let buffer = device.allocate(4).expect("a buffer");
            let product = product(&*buffer, &*buffer, &*buffer);
            let failed = blas.gemm(&mut *queue, &product).expect_err("the library says so");
            let after = queue.finish().err();
            match end {
                "WAIT=700" => {
                    assert!(matches!(failed, Error::DeviceLost { .. }), "{failed}");
                    assert_eq!(after, Some(failed));
                }
                _ => {
                    let code = "CUBLAS_STATUS_EXECUTION_FAILED".to_owned();
                    let (device, call) = (device.id(), "cublasSgemmStridedBatched");
                    assert_eq!(failed, Error::Driver { device, call, code });
                    assert_eq!(after, None);
                }
            }
        });
    }
}

#[test]
fn a_context_that_is_not_given_after_a_loss_asks_for_a_restart() {
    for answer in ["RETAIN=700", "RETAIN=46"] {
        let defines = [answer];
        let fakes = [Fake::new(DRIVER, "libcuda.so.1", &defines)];
        process(
            "losses::a_context_that_is_not_given_after_a_loss_asks_for_a_restart",
            &fakes,
            || {
                let error = Cuda.open(0).map(drop).expect_err("the driver refuses");
                match std::env::var(DETAIL).as_deref() {
                    Ok("RETAIN=700") => {
                        assert!(matches!(error, Error::NeedsRestart { .. }), "{error}")
                    }
                    // Another process may hold the device for itself.
                    _ => assert!(matches!(error, Error::Driver { .. }), "{error}"),
                }
            },
        );
    }
}
