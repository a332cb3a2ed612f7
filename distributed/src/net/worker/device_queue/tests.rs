//! The queue of a device and its threads, with executors that note what they are given.

use super::*;
use crate::net::identity::pki::Pki;
use crate::{ExecErrorKind, ExecutorStatus};
use lgp_memory::Tensor;

/// Notes its inputs, and returns them once it is allowed to.
#[derive(Default)]
struct Recorder {
    calls: Mutex<Vec<Vec<f32>>>,
    gate: Mutex<bool>,
    opened: Condvar,
    /// Whether it gives one result too few.
    short: bool,
}

/// An input of this value makes its whole run panic.
const BAD: f32 = 13.0;

impl Recorder {
    fn let_go(&self) {
        *self.gate.lock().expect("no panic") = true;
        self.opened.notify_all();
    }

    fn note(&self, values: Vec<f32>) {
        assert!(!values.contains(&BAD), "on purpose");
        self.calls.lock().expect("no panic").push(values);
        let gate = self.gate.lock().expect("no panic");
        drop(self.opened.wait_while(gate, |open| !*open).expect("no panic"));
    }
}

fn value(inputs: &[NamedTensor]) -> f32 {
    inputs[0].tensor.as_slice::<f32>().expect("f32")[0]
}

impl Executor for Recorder {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }
    fn unload(&self, _: usize, _: &ModelRef) {}
    fn execute(
        &self,
        _: usize,
        _: &ModelRef,
        inputs: &[NamedTensor],
        _: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        self.note(vec![value(inputs)]);
        Ok(inputs.to_vec())
    }
    fn execute_batch(
        &self,
        _: usize,
        _: &ModelRef,
        batch: &[Vec<NamedTensor>],
        _: &Stop,
    ) -> Vec<Result<Vec<NamedTensor>, ExecError>> {
        self.note(batch.iter().map(|inputs| value(inputs)).collect());
        batch.iter().skip(usize::from(self.short)).cloned().map(Ok).collect()
    }
    fn execute_traced(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> (Vec<Result<Vec<NamedTensor>, ExecError>>, Vec<NodeTime>) {
        let results = match batch {
            [one] => vec![self.execute(device, model, one, stop)],
            many => self.execute_batch(device, model, many, stop),
        };
        let (op, name) = ("Relu".to_owned(), "r".to_owned());
        (results, vec![NodeTime { op, name, start_ns: 0, took_ns: 1 }])
    }
    fn status(&self) -> ExecutorStatus {
        ExecutorStatus::default()
    }
}

pub(super) fn line(
    batch_max: u32,
    batch_delay: Duration,
    executor: &Arc<impl Executor>,
) -> Arc<DeviceQueue> {
    let identity = Pki::generate().and_then(|pki| pki.issue_worker("w")).expect("a name");
    let config = WorkerConfig::new(std::net::SocketAddr::from(([127, 0, 0, 1], 1)), identity, 1);
    let config = WorkerConfig { batch_max, batch_delay, ..config };
    Arc::new(DeviceQueue::new(0, &config, Arc::clone(executor) as _))
}

/// A job of a model with one input of a length, whose first value tells it apart.
pub(super) fn job(model: &str, length: usize, value: f32, priority: Priority) -> Job {
    let mut values = vec![0f32; length];
    values[0] = value;
    let tensor = Tensor::from_slice([length], &values).expect("small");
    let model = ModelRef { name: model.into(), version: 1, sha256: String::new() };
    let inputs = vec![NamedTensor::new("x", tensor)];
    Job {
        priority,
        model,
        batching: None,
        inputs,
        stage: Arc::default(),
        room: None,
        traced: false,
    }
}

#[tokio::test]
async fn a_run_is_traced_where_a_task_of_its_batch_wants_it() {
    let executor = Arc::new(Recorder::default());
    executor.let_go();
    let line = line(2, Duration::from_secs(10), &executor);
    let enter = |value, traced| line.enter(Job { traced, ..job("m", 1, value, Priority::Normal) });
    for (traced, values, told) in [
        ([false, false], [1., 2.], [0, 0]),
        ([false, true], [1., 2.], [0, 1]),
        // Each runs alone once more, without a trace.
        ([true, true], [1., BAD], [0, 0]),
    ] {
        let tickets = [enter(values[0], traced[0]), enter(values[1], traced[1])];
        for (ticket, (value, told)) in tickets.into_iter().zip(values.into_iter().zip(told)) {
            let ran = ticket.ran.await.expect("it runs");
            assert_eq!((ran.nodes.len(), ran.result.is_err()), (told, value == BAD), "{traced:?}");
        }
    }
    let alone = DeviceQueue::execute;
    let inputs = |value| job("m", 1, value, Priority::Normal);
    for (traced, told) in [(false, 0), (true, 1)] {
        let Job { model, inputs, .. } = inputs(3.);
        let (result, nodes) = alone(&line, &model, &inputs, &Stop::new(), traced);
        assert!(result.is_ok() && nodes.len() == told, "{result:?}");
    }
    let Job { model, inputs, .. } = inputs(BAD);
    let (result, nodes) = alone(&line, &model, &inputs, &Stop::new(), true);
    assert!(result.is_err_and(|error| error.message.contains("panicked")) && nodes.is_empty());
}

#[tokio::test]
async fn models_have_batches_of_their_own_and_one_task_stands_for_each() {
    let size = |n: u32| std::num::NonZeroU32::new(n).expect("not zero");
    let executor = Arc::new(Recorder::default());
    executor.let_go();
    let line = line(1, Duration::ZERO, &executor);
    let enter = |model: &str, value, max: Option<u32>| {
        let batching = max.map(|max| {
            let preferred = vec![size(2)];
            Box::new(Batching { max: size(max), preferred, delay_us: 10_000_000 })
        });
        line.enter(Job { batching, ..job(model, 1, value, Priority::Normal) })
    };
    let first = enter("a", 1., Some(8));
    // The first task waits for a second one, and holds up no other model.
    let alone = enter("b", 2., None).ran.await.expect("it runs");
    assert_eq!((alone.batch, alone.joined), (1, false));
    // A task with other batch settings is not like it.
    let other = enter("a", 3., Some(4));
    let second = enter("a", 4., Some(8));
    let mut stand = 0;
    for ticket in [first, second] {
        let ran = ticket.ran.await.expect("it runs");
        assert_eq!(ran.batch, 2);
        stand += u32::from(!ran.joined);
    }
    assert_eq!(stand, 1);
    assert!(line.leave(&other), "it waits for one like it");
    assert_eq!(*executor.calls.lock().expect("no panic"), [vec![2.], vec![1., 4.]]);
}

async fn until_called(executor: &Recorder, calls: usize) {
    while executor.calls.lock().expect("no panic").len() < calls {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn batches_are_of_one_kind_and_the_urgent_go_first() {
    use Priority::{Background, Critical, Normal};
    let executor = Arc::new(Recorder::default());
    let line = line(4, Duration::ZERO, &executor);
    let first = line.enter(job("a", 1, 1., Normal));
    until_called(&executor, 1).await;
    let mut tickets = vec![first];
    for (model, length, value, priority) in [
        ("a", 1, 2., Background),
        ("b", 1, 3., Normal),
        ("a", 2, 4., Normal),
        ("a", 1, 5., Background),
        ("a", 1, 6., Critical),
        ("a", 1, 7., Background),
        ("a", 1, 8., Background),
    ] {
        tickets.push(line.enter(job(model, length, value, priority)));
    }
    executor.let_go();
    let mut sizes = Vec::new();
    for ticket in tickets {
        let ran = ticket.ran.await.expect("it runs");
        sizes.push((value(&ran.result.expect("no failure")), ran.batch));
    }
    let expected: [&[f32]; 5] = [&[1.], &[6., 2., 5., 7.], &[3.], &[4.], &[8.]];
    assert_eq!(*executor.calls.lock().expect("no panic"), expected);
    let batch = |value: f32| if [6., 2., 5., 7.].contains(&value) { 4 } else { 1 };
    assert_eq!(sizes.len(), 8);
    assert!(sizes.iter().all(|(value, size)| *size == batch(*value)), "{sizes:?}");
}

#[tokio::test]
async fn a_panic_in_a_batch_fails_the_task_that_caused_it_alone() {
    let executor = Arc::new(Recorder::default());
    let line = line(8, Duration::ZERO, &executor);
    let first = line.enter(job("a", 1, 1., Priority::Normal));
    until_called(&executor, 1).await;
    let enter = |value| line.enter(job("a", 1, value, Priority::Normal));
    let tickets = [enter(2.), enter(BAD), enter(3.)];
    executor.let_go();
    first.ran.await.expect("it runs").result.expect("no failure");
    for (ticket, works) in tickets.into_iter().zip([true, false, true]) {
        let ran = ticket.ran.await.expect("it runs");
        assert_eq!((ran.result.is_ok(), ran.batch), (works, 3));
        if let Err(error) = ran.result {
            assert_eq!(error.kind, ExecErrorKind::Failed);
            assert!(error.message.ends_with("it panicked: on purpose"), "{error}");
        }
    }
    let alone = line.enter(job("a", 1, 4., Priority::Normal));
    assert!(alone.ran.await.expect("the thread lives").result.is_ok());
}

#[tokio::test]
async fn too_few_results_are_the_executors_failure() {
    let executor = Arc::new(Recorder { short: true, ..Recorder::default() });
    let line = line(2, Duration::from_secs(10), &executor);
    executor.let_go();
    let tickets = [1., 2.].map(|value| line.enter(job("a", 1, value, Priority::Normal)));
    for ticket in tickets {
        let error = ticket.ran.await.expect("it runs").result.expect_err("none is its own");
        assert_eq!(error.message, "the executor gave 1 results for 2 tasks");
    }
}

#[tokio::test]
async fn what_waits_can_leave_and_what_runs_cannot() {
    let executor = Arc::new(Recorder::default());
    let line = line(1, Duration::ZERO, &executor);
    let [first, second, third] =
        [1., 2., 3.].map(|value| line.enter(job("a", 1, value, Priority::Normal)));
    until_called(&executor, 1).await;
    assert!(!line.leave(&first) && line.leave(&second) && !line.leave(&second));
    executor.let_go();
    assert!(first.ran.await.is_ok() && second.ran.await.is_err() && third.ran.await.is_ok());
    assert_eq!(*executor.calls.lock().expect("no panic"), [[1.], [3.]]);
}

#[tokio::test]
async fn a_batch_is_waited_for_until_it_is_full_or_late() {
    let executor = Arc::new(Recorder::default());
    executor.let_go();
    let patient = line(2, Duration::from_secs(10), &executor);
    let began = Instant::now();
    let mut first = patient.enter(job("a", 1, 1., Priority::Normal));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(first.ran.try_recv().is_err(), "it waits for company");
    let second = patient.enter(job("a", 1, 2., Priority::Normal));
    for ticket in [first, second] {
        assert_eq!(ticket.ran.await.expect("it runs").batch, 2);
    }
    assert!(began.elapsed() < Duration::from_secs(9), "a full batch waits for nobody");
    let hasty = line(2, Duration::from_millis(20), &executor);
    let began = Instant::now();
    let alone = hasty.enter(job("a", 1, 3., Priority::Normal));
    assert_eq!(alone.ran.await.expect("it runs").batch, 1);
    assert!(began.elapsed() >= Duration::from_millis(20));
}

/// Runs until it is asked to stop, and shares the signals that it was given.
#[derive(Default)]
struct Stoppable {
    running: Mutex<Vec<Stop>>,
}

impl Stoppable {
    fn last(&self) -> Option<Stop> {
        self.running.lock().expect("no panic").last().cloned()
    }

    fn until_stopped(&self, stop: &Stop) -> ExecError {
        self.running.lock().expect("no panic").push(stop.clone());
        while !stop.is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        ExecError::stopped("as it was asked to")
    }
}

impl Executor for Stoppable {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }
    fn unload(&self, _: usize, _: &ModelRef) {}
    fn execute(
        &self,
        _: usize,
        _: &ModelRef,
        _: &[NamedTensor],
        stop: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        Err(self.until_stopped(stop))
    }
    fn execute_batch(
        &self,
        _: usize,
        _: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &Stop,
    ) -> Vec<Result<Vec<NamedTensor>, ExecError>> {
        let error = self.until_stopped(stop);
        batch.iter().map(|_| Err(error.clone())).collect()
    }
    fn status(&self) -> ExecutorStatus {
        ExecutorStatus::default()
    }
}

#[tokio::test]
async fn a_batch_is_stopped_once_all_of_it_are_asked_to() {
    let executor = Arc::new(Stoppable::default());
    let line = line(4, Duration::ZERO, &executor);
    let enter = |value| {
        let job = job("a", 1, value, Priority::Normal);
        (Arc::clone(&job.stage), line.enter(job))
    };
    let (first, alone) = enter(1.);
    while executor.last().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // These tasks wait, and are one batch, of which one is stopped before it begins.
    let batch: Vec<_> = [2., 3., 4.].into_iter().map(enter).collect();
    batch[1].0.cancel();
    first.cancel();
    let error = alone.ran.await.expect("it ends").result.expect_err("it was stopped");
    assert_eq!(error.kind, ExecErrorKind::Stopped);
    let of_all = loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let running = executor.running.lock().expect("no panic");
        if let [_, last] = running.as_slice() {
            break last.clone();
        }
    };
    batch[0].0.cancel();
    assert!(!of_all.is_stopped(), "one of them is still wanted");
    batch[2].0.cancel();
    for (_, ticket) in batch {
        let ran = ticket.ran.await.expect("it ends");
        assert_eq!(ran.batch, 3);
        assert_eq!(ran.result.expect_err("it was stopped").kind, ExecErrorKind::Stopped);
    }
    let (stage, ticket) = {
        let job = job("a", 1, 5., Priority::Normal);
        job.stage.cancel();
        (Arc::clone(&job.stage), line.enter(job))
    };
    let ran = ticket.ran.await.expect("it ends");
    assert_eq!(ran.result.expect_err("it was stopped").kind, ExecErrorKind::Stopped);
    assert!(stage.has_begun() && executor.running.lock().expect("no panic").len() == 2);
}
