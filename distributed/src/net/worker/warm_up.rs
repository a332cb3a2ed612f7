//! Runs of a model that was just loaded, before its worker reports the load: no task waits for what
//! a first run prepares.

use crate::executor::{ExecError, ExecErrorKind, Executor, ExecutorStatus, Stop};
use crate::net::outside;
use crate::net::worker::STOP_TIMEOUT;
use crate::proto::message::{Load, TensorMeta};
use crate::proto::tensors::{RANK_MAX, TENSORS_MAX, dtype_of};
use crate::task::ModelRef;
use lgp_memory::{DType, NamedTensor, Shape, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedMutexGuard};

/// Most runs of one model.
const RUNS_MAX: usize = 16;
/// How long a run may take if no limit is set.
const LIMIT: Duration = Duration::from_secs(600);

/// The warm-ups of models at devices, over all connections of a worker.
#[derive(Debug, Default)]
pub(crate) struct WarmUps {
    /// By device and model, whether the runs are over.
    states: Mutex<HashMap<(usize, ModelRef), bool>>,
    /// By device, the lock that is held while an order for the device is carried out.
    turns: Mutex<HashMap<usize, Arc<tokio::sync::Mutex<()>>>>,
    /// Signals that a warm-up run does not stop.
    pub(crate) hung: Notify,
}

impl WarmUps {
    fn lock(&self) -> MutexGuard<'_, HashMap<(usize, ModelRef), bool>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other order for a device is carried out; the guard makes the next order wait.
    pub(crate) async fn turn(&self, at: usize) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(at).or_default())
        };
        turn.lock_owned().await
    }

    /// Removes models from a status that are loaded but not warm.
    pub(crate) fn hide(&self, status: &mut ExecutorStatus) {
        let states = self.lock();
        for (at, device) in status.devices.iter_mut().enumerate() {
            device.models.retain(|model| states.get(&(at, model.clone())) != Some(&false));
        }
    }

    /// A model's runs begin, before it is loaded. It is hidden until they are done, even if the
    /// connection that ordered them is lost.
    pub(crate) fn begin(&self, at: usize, model: &ModelRef) {
        self.lock().insert((at, model.clone()), false);
    }

    /// A model's runs are over. If the device unloaded the model meanwhile, they count for nothing.
    pub(crate) fn done(&self, at: usize, model: &ModelRef) {
        if let Some(done) = self.lock().get_mut(&(at, model.clone())) {
            *done = true;
        }
    }

    /// Whether a model has had its runs.
    pub(crate) fn is_warm(&self, at: usize, model: &ModelRef) -> bool {
        self.lock().get(&(at, model.clone())) == Some(&true)
    }

    /// A device unloads a model, or does not have it.
    pub(crate) fn forget(&self, at: usize, model: &ModelRef) {
        self.lock().remove(&(at, model.clone()));
    }
}

/// Runs a loaded model as its order says; the first failure counts as that of the load. `hung`
/// hears of a run that does not stop.
pub(crate) async fn run(
    executor: &Arc<dyn Executor>,
    at: usize,
    load: &Load,
    (bytes_max, hung): (usize, &Notify),
) -> Result<(), ExecError> {
    let given = load.warm_up.len();
    if given > RUNS_MAX {
        let message = format!("{given} warm-up runs, at most {RUNS_MAX} are accepted");
        return Err(ExecError::bad_input(message));
    }
    let limit = load.run_limit_ms.map_or(LIMIT, Duration::from_millis);
    for (number, inputs) in (1..).zip(&load.warm_up) {
        let failed = |error: ExecError| ExecError {
            message: format!("warm-up run {number}: {}", error.message),
            ..error
        };
        run_once(executor, (at, &load.model), inputs.clone(), (bytes_max, limit, hung))
            .await
            .map_err(failed)?;
    }
    Ok(())
}

/// Asks a run to stop when this is dropped.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

async fn run_once(
    executor: &Arc<dyn Executor>,
    (at, model): (usize, &ModelRef),
    metas: Vec<TensorMeta>,
    (bytes_max, limit, hung): (usize, Duration, &Notify),
) -> Result<(), ExecError> {
    let stop = StopOnDrop(Stop::new());
    let (executor, model, asked) = (Arc::clone(executor), model.clone(), stop.0.clone());
    let mut ran = outside::blocking(move || {
        let inputs = zeros(metas, bytes_max)?;
        executor.execute(at, &model, &inputs, &asked).map(drop)
    });
    let (ended, overran) = tokio::select! {
        ended = &mut ran => (ended, false),
        () = tokio::time::sleep(limit) => {
            stop.0.stop();
            match tokio::time::timeout(STOP_TIMEOUT, &mut ran).await {
                Ok(ended) => (ended, true),
                Err(_) => {
                    hung.notify_one();
                    let what = format!("it does not stop after its run limit of {limit:?}");
                    return Err(ExecError::failed(what));
                }
            }
        }
    };
    match ended {
        Ok(Err(error)) if overran && error.kind == ExecErrorKind::Stopped => {
            Err(ExecError::failed(format!("it took longer than its run limit of {limit:?}")))
        }
        Ok(result) => result,
        Err(error) => Err(ExecError::failed(error.to_string())),
    }
}

/// Inputs that are all zeros, or empty texts; inputs of too many bytes are refused before anything
/// is allocated for them.
fn zeros(metas: Vec<TensorMeta>, bytes_max: usize) -> Result<Vec<NamedTensor>, ExecError> {
    let refused = |what: String| ExecError::bad_input(what);
    if metas.len() > TENSORS_MAX {
        let given = metas.len();
        return Err(refused(format!("{given} inputs, at most {TENSORS_MAX} are accepted")));
    }
    let mut left = bytes_max;
    let mut inputs = Vec::with_capacity(metas.len());
    for TensorMeta { name, dtype: code, shape } in metas {
        let dtype = dtype_of(code).ok_or_else(|| {
            refused(format!("input {name:?} has the element type {code}, which is not known"))
        })?;
        let dims: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
        let dims = dims.map_err(|error| refused(format!("input {name:?}: {error}")))?;
        if dims.len() > RANK_MAX {
            let rank = dims.len();
            return Err(refused(format!(
                "input {name:?} has rank {rank}, at most {RANK_MAX} is accepted"
            )));
        }
        let shape = Shape::new(dims);
        let bytes = shape.byte_len(dtype).map_err(|e| refused(format!("input {name:?}: {e}")))?;
        left = left.checked_sub(bytes).ok_or_else(|| {
            let what = format!("its inputs take more than {bytes_max} bytes with {name:?}");
            refused(format!("{what}: raise the worker's input_bytes_max, or make them smaller"))
        })?;
        let tensor = match dtype {
            DType::Str => {
                let empty = vec![""; shape.elements().unwrap_or_default()];
                Tensor::from_strings(shape, &empty)
            }
            _ => Tensor::zeros(dtype, shape),
        };
        let tensor = tensor.map_err(|e| ExecError::unavailable(format!("input {name:?}: {e}")))?;
        inputs.push(NamedTensor::new(name, tensor));
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(name: &str, dtype: u8, shape: &[u64]) -> TensorMeta {
        TensorMeta { name: name.into(), dtype, shape: shape.to_vec() }
    }

    #[test]
    fn inputs_are_zeros_and_bounded_before_they_are_made() {
        let metas = vec![meta("x", 3, &[2, 3]), meta("texts", 26, &[2])];
        let inputs = zeros(metas, 1_000).expect("small");
        assert_eq!(inputs[0].tensor.as_slice::<f32>().expect("f32"), [0.0; 6]);
        assert_eq!(inputs[1].tensor.strings().expect("texts"), ["", ""]);
        for (metas, part) in [
            (vec![meta("x", 3, &[1 << 40])], "more than 1000 bytes"),
            (vec![meta("x", 3, &[200]), meta("y", 3, &[200])], "more than 1000 bytes with \"y\""),
            (vec![meta("x", 3, &[u64::MAX, u64::MAX])], "\"x\""),
            (vec![meta("x", 200, &[1])], "element type 200"),
            (vec![meta("x", 3, &[1; 33])], "rank 33"),
            (vec![meta("x", 26, &[1 << 40])], "more than 1000 bytes"),
        ] {
            let error = zeros(metas, 1_000).expect_err(part);
            assert!(error.message.contains(part), "{error}");
        }
    }

    /// Runs until it is stopped if its input has two dimensions, longer than that if it has four;
    /// fails if it has three.
    struct Model;

    impl Executor for Model {
        fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
            Ok(())
        }
        fn unload(&self, _: usize, _: &ModelRef) {}
        fn execute(
            &self,
            _: usize,
            _: &ModelRef,
            inputs: &[NamedTensor],
            stop: &Stop,
        ) -> Result<Vec<NamedTensor>, ExecError> {
            match inputs[0].tensor.shape().rank() {
                1 => Ok(Vec::new()),
                2 => {
                    while !stop.is_stopped() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    Err(ExecError::stopped("as it was asked to"))
                }
                4 => {
                    std::thread::sleep(STOP_TIMEOUT * 3 / 2);
                    Ok(Vec::new())
                }
                _ => Err(ExecError::bad_input("three dimensions")),
            }
        }
        fn status(&self) -> ExecutorStatus {
            ExecutorStatus::default()
        }
    }

    #[tokio::test]
    async fn the_first_run_that_fails_is_told() {
        let executor: Arc<dyn Executor> = Arc::new(Model);
        let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
        let of = |ranks: &[usize]| Load {
            device: 0,
            model: model.clone(),
            warm_up: ranks.iter().map(|rank| vec![meta("x", 3, &vec![1; *rank])]).collect(),
            run_limit_ms: Some(20),
        };
        let hung = Notify::new();
        run(&executor, 0, &of(&[1, 1]), (1_000, &hung)).await.expect("it works");
        for (ranks, message) in [
            (&[1, 3][..], "warm-up run 2: three dimensions"),
            (&[2], "warm-up run 1: it took longer than its run limit of 20ms"),
            (&[4], "warm-up run 1: it does not stop after its run limit of 20ms"),
            (&[1; 17], "17 warm-up runs, at most 16 are accepted"),
        ] {
            let error = run(&executor, 0, &of(ranks), (1_000, &hung)).await.expect_err(message);
            assert_eq!(error.message, message);
        }
        let told = tokio::time::timeout(Duration::ZERO, hung.notified()).await;
        assert!(told.is_ok(), "one did not stop");
    }

    #[test]
    fn a_model_is_hidden_until_it_is_warm() {
        let warm_ups = WarmUps::default();
        let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
        let listed = || {
            let device = crate::DeviceStatus { models: vec![model.clone()], ..Default::default() };
            let mut status = ExecutorStatus::of(device);
            warm_ups.hide(&mut status);
            !status.devices[0].models.is_empty()
        };
        assert!(listed());
        warm_ups.begin(0, &model);
        assert!(!listed() && !warm_ups.is_warm(0, &model));
        warm_ups.forget(0, &model);
        assert!(listed() && !warm_ups.is_warm(0, &model), "its runs failed");
        warm_ups.begin(0, &model);
        warm_ups.done(0, &model);
        assert!(listed() && warm_ups.is_warm(0, &model));
        warm_ups.forget(0, &model);
        warm_ups.done(0, &model);
        assert!(!warm_ups.is_warm(0, &model), "it is not there any more");
    }
}
