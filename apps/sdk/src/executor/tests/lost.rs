//! Devices that are lost: found by a load or a run, opened again or given up.

use super::*;
use crate::multi::MultiExecutor;
use lgp_hal::{Caps, Device, NullDevice, Program, pass_on};
use std::any::Any;

/// The recording device as one that compiles programs, as far as a load needs it.
#[derive(Debug)]
struct Losable {
    inner: Arc<NullDevice>,
    caps: Caps,
}

#[derive(Debug)]
struct Text(Vec<u8>);

impl Program for Text {
    fn kernels(&self) -> &[String] {
        &[]
    }

    fn binary(&self) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Device for Losable {
    pass_on!(inner: id, name, allocate, queue, pinned, load, arithmetic);

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn compile(&self, source: &str, _: &str) -> lgp_hal::Result<Arc<dyn Program>> {
        Ok(Arc::new(Text(source.into())))
    }
}

fn accelerator(inner: &Arc<NullDevice>) -> Accelerator {
    let caps = Caps {
        programs: true,
        work_group_max: 1_024,
        local_memory_bytes: 1 << 16,
        ..inner.caps().clone()
    };
    let device = Losable { inner: Arc::clone(inner), caps };
    Accelerator::new(Arc::new(device)).expect("it seems to be fit")
}

/// A model `y = x + w`, whose weights go to the device in its first run, and an executor on a device
/// that is lost.
fn on_a_lost_device() -> (tempfile::TempDir, ModelExecutor, ModelRef) {
    let shape = Some(SymShape(vec![Dim::Known(2)]));
    let ty = TensorType { dtype: DType::F32, shape };
    let mut builder = GraphBuilder::new("add");
    let x = builder.input("x", ty.clone());
    let w = builder.initializer("w", Tensor::from_slice([2], &[1f32, 2.]).expect("fits"));
    let y = builder.node("Add", &[x, w], []);
    builder.output("y", y, ty);
    let bytes = builder.finish().and_then(|model| model.to_onnx()).expect("a sound graph");
    let (folder, on_the_cpu, model) = stored("add", &bytes);
    let inner = Arc::new(NullDevice::new(Some(1 << 30)));
    let device = accelerator(&inner);
    inner.lose();
    let options = SessionOptions::with_threads(1);
    (folder, ModelExecutor::new(on_the_cpu.repository, Some(device), options), model)
}

#[test]
fn a_refused_device_is_asked_for_again_by_the_next_task() {
    let (_folder, executor, model) = on_a_lost_device();
    executor.load(0, &model).expect("loading takes none of the device's memory");
    for _ in 0..2 {
        // The registry opens a recording device, which compiles nothing.
        let error = executor.execute(0, &model, &input("x", &[1., 2.]), &Stop::new());
        let error = error.expect_err("lost");
        assert_eq!(error.kind, ExecErrorKind::Unavailable, "{error}");
        assert!(error.message.contains("NullDevice::lose"), "{error}");
        assert!(!executor.is_loaded(&model), "its memory is gone");
        assert!(!executor.must_restart());
    }
}

#[test]
fn a_device_that_is_opened_again_gets_the_next_task() {
    let (_folder, executor, model) = on_a_lost_device();
    executor.load(0, &model).expect("loading takes none of the device's memory");
    let lost = executor.loaded(&model).expect("it is loaded");
    executor.reopen(&lost, |_| Ok(Some(accelerator(&Arc::new(NullDevice::new(None))))));
    executor.reopen(&lost, |_| unreachable!("another task has opened it"));
    // It fails by the recording device, which has no kernels, and no longer by the loss.
    let error = executor.execute(0, &model, &input("x", &[1., 2.]), &Stop::new());
    assert_eq!(error.expect_err("no kernels").kind, ExecErrorKind::Failed);
}

#[test]
fn a_device_that_needs_a_new_process_is_given_up_and_told() {
    let (_folder, executor, model) = on_a_lost_device();
    executor.load(0, &model).expect("loading takes none of the device's memory");
    let lost = executor.loaded(&model).expect("it is loaded");
    let code = "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned();
    let needed = DeviceError::NeedsRestart { device: DeviceId::NULL, code };
    executor.reopen(&lost, |_| Err(OpError::Device(needed)));
    assert!(executor.must_restart());
    let error = executor.execute(0, &model, &input("x", &[1., 2.]), &Stop::new());
    let error = error.expect_err("it is given up");
    assert_eq!(error.kind, ExecErrorKind::Unavailable, "{error}");
    assert!(error.message.contains("only in a new process"), "{error}");
    executor.reopen(&lost, |_| unreachable!("it is not opened twice"));
    let sound = ModelExecutor::new(executor.repository.clone(), None, executor.options);
    assert!(!sound.must_restart());
    assert!(MultiExecutor::new(sound, vec![executor]).must_restart(), "one is enough");
}
