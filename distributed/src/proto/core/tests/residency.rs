//! Where models go when there is little room.

mod exchange;
mod stock;
mod withdrawn;

use crate::executor::{DeviceStatus, ExecutorStatus};
use crate::proto::Order;
use crate::proto::balance::by_name;
use crate::proto::core::Core;
use crate::proto::core::tests::joining;
use crate::proto::membership::Join;
use crate::proto::message::AttemptId;
use crate::proto::models::ModelNeeds;
use crate::proto::state::{
    Action, Completion, CoreConfig, Digest, RetentionLimits, SessionId, Timing,
};
use crate::task::{ModelRef, TaskId, TaskSpec, TaskState};
use std::sync::Arc;
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Workers here need not send heartbeats.
const FOREVER: Duration = ms(1_000_000);

fn model(name: &str) -> ModelRef {
    ModelRef { name: name.into(), version: 1, sha256: String::new() }
}

/// A cluster whose loads and tasks succeed when they are told to.
struct Cluster {
    core: Core,
    now: Duration,
    /// What happened since the last call of `seen`, in words.
    seen: Vec<String>,
    running: Vec<(SessionId, AttemptId, String)>,
    /// The time that loading takes.
    loads: Duration,
    /// Whether workers confirm that they have unloaded models.
    confirms: bool,
}

impl Cluster {
    fn new(strategy: &str) -> Self {
        let config = CoreConfig {
            first_seq: None,
            epoch: 1,
            balancing: by_name(strategy).expect("in the table"),
            queue_tasks_max: 1_000,
            queue_bytes_max: 1_000,
            retention: RetentionLimits {
                retained_tasks_max: 1_000,
                retained_bytes_max: 1_000,
                keys_kept_for: ms(60_000),
                results_kept_for: ms(600_000),
                results_bytes_max: 10_000,
                outputs_inline_max: 1 << 20,
                results_max: 1_000,
            },
            durable: false,
            thrift: 0.0,
            run_limit: None,
            timing: Timing { suspect_after: FOREVER, lost_after: FOREVER, ..Timing::default() },
        };
        let core = Core::new(ms(0), config, 1);
        Self {
            core,
            now: ms(0),
            seen: Vec::new(),
            running: Vec::new(),
            loads: ms(0),
            confirms: true,
        }
    }

    fn join(&mut self, name: &str, memory: Option<u64>) {
        self.come(name, DeviceStatus { vram_total_bytes: memory, ..DeviceStatus::default() });
    }

    /// A worker comes with a device that may have models.
    fn come(&mut self, name: &str, device: DeviceStatus) {
        let join = Join { status: ExecutorStatus::of(device), ..joining((name, 0), 1) };
        self.core.join(self.now, join).expect("none is later");
        self.settle();
    }

    fn load(&mut self, name: &str, bytes: u64) {
        let needs = ModelNeeds { memory_bytes: Some(bytes), ..ModelNeeds::default() };
        self.core.load(self.now, &model(name), needs);
        self.settle();
    }

    fn submit(&mut self, name: &str) -> TaskId {
        let id = self.ask(name);
        self.settle();
        id
    }

    /// Submits a task without looking at what follows.
    fn ask(&mut self, name: &str) -> TaskId {
        let spec = Arc::new(TaskSpec::new(model(name), Vec::new()));
        let order = Order {
            spec,
            input_bytes: 0,
            queued_bytes: 0,
            digest: Digest::default(),
            within: Vec::new(),
        };
        self.core.submit(self.now, order).expect("there is room")
    }

    /// Carries out the core's actions; loads succeed at once.
    fn settle(&mut self) {
        while let Some(action) = self.core.next_action(self.now) {
            match action {
                Action::Dispatch { session, id, model, .. } => {
                    self.seen.push(format!("run {} on {session}", model.name));
                    self.running.push((session, id, model.name.clone()));
                }
                Action::Load { session, device, model } => {
                    self.seen.push(format!("load {} on {session}", model.name));
                    self.now += self.loads;
                    let took = Some(self.loads);
                    self.core.loaded(self.now, session, device, &model, Ok(None), took);
                }
                Action::Unload { session, device, model } => {
                    self.seen.push(format!("drop {} on {session}", model.name));
                    if self.confirms {
                        self.core.unloaded(self.now, session, device, &model);
                    }
                }
                _ => {}
            }
        }
    }

    /// Every running task ends after `took`.
    fn end_all(&mut self, took: Duration) {
        self.now += took;
        for (session, id, _) in std::mem::take(&mut self.running) {
            let done =
                Completion::Done { outputs: Vec::new(), model: took, batch: 1, joined: false };
            self.core.complete(self.now, session, id, done);
        }
        self.settle();
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.core.tick(self.now);
        self.settle();
    }

    fn seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.seen)
    }

    fn state(&self, id: TaskId) -> TaskState {
        self.core.record(self.now, id).expect("known").state
    }
}

#[test]
fn models_go_where_they_fit() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("small", Some(10));
    cluster.join("large", Some(100));
    cluster.join("any", None);
    cluster.load("a", 8);
    cluster.load("b", 8);
    // The first device has no room for the second model; nothing is evicted for that.
    let expected = ["load a on 1", "load a on 2", "load a on 3", "load b on 2", "load b on 3"];
    assert_eq!(cluster.seen(), expected);
    // Room that becomes free is used.
    cluster.core.unload(cluster.now, &model("a"));
    cluster.settle();
    assert_eq!(cluster.seen()[3..], ["load b on 1"]);
}

#[test]
fn a_task_of_a_model_that_is_nowhere_takes_the_place_of_one_that_is_idle() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    cluster.load("a", 6);
    cluster.load("b", 4);
    cluster.submit("b");
    cluster.end_all(ms(1));
    cluster.load("c", 6);
    // A caller asked for it: the one that was used longest ago makes room.
    assert_eq!(
        cluster.seen(),
        ["load a on 1", "load b on 1", "run b on 1", "drop a on 1", "load c on 1"]
    );
    cluster.wait(ms(5_000));
    let running = cluster.submit("c");
    let task = cluster.submit("a");
    assert_eq!(cluster.seen(), ["run c on 1"], "every slot is taken");
    assert_eq!(cluster.state(task), TaskState::Queued);
    cluster.end_all(ms(5));
    assert_eq!(cluster.seen(), ["drop b on 1", "drop c on 1", "load a on 1", "run a on 1"]);
    assert_eq!(cluster.state(running), TaskState::Succeeded);
    let why = cluster.core.explain(cluster.now, task).expect("known").here();
    assert!(why.iter().any(|(_, text)| text.contains("in place of 2")), "{why:?}");
}

#[test]
fn models_that_are_asked_for_all_the_time_take_turns() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.loads = ms(200);
    cluster.join("w", Some(10));
    cluster.load("a", 8);
    cluster.load("b", 8);
    cluster.seen();
    let mut tasks = Vec::new();
    for _ in 0..100 {
        tasks.push(cluster.submit("a"));
        tasks.push(cluster.submit("b"));
        cluster.end_all(ms(50));
        cluster.end_all(ms(50));
    }
    for _ in 0..200 {
        cluster.end_all(ms(50));
        cluster.wait(ms(10));
    }
    assert!(tasks.iter().all(|id| cluster.state(*id) == TaskState::Succeeded));
    let seen = cluster.seen();
    let changes = seen.iter().filter(|what| what.starts_with("load")).count();
    // Ten seconds of work: a task waits for more than a second before models change places.
    assert!((2..=14).contains(&changes), "{changes}");
}

#[test]
fn a_model_whose_tasks_wait_gets_an_idle_device_too() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("one", Some(10));
    cluster.load("a", 8);
    cluster.join("two", Some(10));
    cluster.load("b", 8);
    // No task needs it, and the second device is as good for the first model.
    assert_eq!(cluster.seen(), ["load a on 1", "load a on 2", "drop a on 1", "load b on 1"]);
    cluster.wait(ms(10));
    let tasks: Vec<TaskId> = (0..100).map(|_| cluster.submit("a")).collect();
    for _ in 0..60 {
        cluster.end_all(ms(50));
    }
    let seen = cluster.seen();
    let at = seen.iter().position(|what| what == "load a on 1").expect("it was worth it");
    assert!((20..40).contains(&at), "{at}");
    assert!(tasks.iter().all(|id| cluster.state(*id) == TaskState::Succeeded));
}

#[test]
fn what_fits_nowhere_fails_with_the_reason() {
    let mut cluster = Cluster::new("least_loaded");
    cluster.join("w", Some(10));
    cluster.load("huge", 11);
    let report = cluster.core.load_report(&model("huge")).expect("there is nothing to wait for");
    let error = report[0].1.as_ref().expect_err("it does not fit");
    assert!(error.message.contains("11") && error.message.contains("10"), "{error}");
    let task = cluster.submit("huge");
    assert_eq!(cluster.state(task), TaskState::Failed);
}
