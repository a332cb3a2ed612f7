//! The laws of coordinators on two machines, checked for each shared engine.

use crate::net::coordinator::gate::Services;
use crate::{
    Control, Coordinator, CoordinatorConfig, Error, ModelRef, Pki, TaskFilter, TaskId, TaskSpec,
    TaskState, Tokens,
};
use lgp_memory::{NamedTensor, Tensor};
use std::path::Path;
use std::time::{Duration, Instant};

/// The name of the cluster's data on the engine.
pub(super) const NAME: &str = "machines";

/// Servers that one test owns.
pub(super) trait Engine {
    fn address(&self) -> String;

    /// Ends the present lead, as if its coordinator had been cut off for longer than its lease.
    fn depose(&self);

    fn kill(&mut self);

    /// Starts the killed server and waits until it answers.
    fn run(&mut self);
}

/// The data folder of one machine.
struct Machine {
    folder: tempfile::TempDir,
    control: Control,
}

impl Machine {
    fn new(engine: &impl Engine) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let control = Control::new(engine.address(), NAME).expect("an address");
        Self { folder, control }
    }

    fn pki(&self) -> crate::Result<Pki> {
        Pki::open_on(&self.folder.path().join("pki"), Some(&self.control))
    }

    async fn start(&self) -> crate::Result<Coordinator> {
        let pki = self.pki()?;
        let journal = Some(self.folder.path().join("journal"));
        let quic_addr = ([127, 0, 0, 1], 0).into();
        let control = Some(self.control.clone());
        let config = CoordinatorConfig { quic_addr, journal, control, ..Default::default() };
        let tokens = Some(Tokens::open(&pki)?);
        Coordinator::start_with(config, &pki, Services { tokens, ..Services::default() }).await
    }

    /// Copies the authority's certificate and key to another machine.
    fn give_authority(&self, other: &Self) {
        let name = Path::new("pki");
        let (from, to) = (self.folder.path().join(name), other.folder.path().join(name));
        crate::control::files::make_private_folder(&to).expect("a new folder");
        std::fs::copy(from.join("authority.pem"), to.join("authority.pem")).expect("there");
    }
}

pub(in crate::control) fn task(key: &str) -> TaskSpec {
    let model = ModelRef { name: "echo".into(), version: 1, sha256: "00".repeat(32) };
    let x = Tensor::from_slice([3_000], &[1_u8; 3_000]).expect("small");
    let mut spec = TaskSpec::new(model, vec![NamedTensor::new("x", x)]);
    spec.idempotency_key = Some(key.into());
    spec.durable = true;
    spec
}

pub(in crate::control) async fn known(coordinator: &Coordinator) -> Vec<(TaskId, TaskState)> {
    let listed = coordinator.tasks(&TaskFilter::default()).await.expect("readable").tasks;
    listed.into_iter().rev().map(|task| (task.task_id, task.state)).collect()
}

pub(in crate::control) async fn until(what: &str, limit: Duration, is: impl AsyncFn() -> bool) {
    let end = Instant::now() + limit;
    while !is().await {
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Longer than a lease, a poll, and the opening of a small log.
pub(in crate::control) const SOON: Duration = Duration::from_secs(10);

/// The engine's name must start with `named`.
pub(super) async fn another_machine_goes_on_with_the_tasks(engine: &impl Engine, named: &str) {
    let (one, two) = (Machine::new(engine), Machine::new(engine));
    let first = one.start().await.expect("free");
    until("the first leads", SOON, async || first.leads()).await;
    let ids = first.submit_all((0..20).map(|at| (task(&at.to_string()), vec![])).collect());
    let ids = ids.await.expect("durable");
    first.cancel(ids[3]).await.expect("it waits");
    let token = first.tokens().expect("given").create(1, Duration::from_secs(60)).expect("a token");
    // The coordinator shows an end once it is durable.
    let cancelled = async || known(&first).await[3].1 == TaskState::Cancelled;
    until("it is cancelled", SOON, cancelled).await;
    let before = known(&first).await;
    assert_eq!(before.len(), 20);

    let control = Some(one.control.clone());
    let without_folder = CoordinatorConfig { control, ..Default::default() };
    let pki = one.pki().expect("readable");
    let refused = Coordinator::start(without_folder, &pki).await.expect_err("no journal's path");
    assert!(matches!(refused, Error::Control { .. }), "{refused}");
    let refused = two.pki().expect_err("a certificate of its own");
    assert!(refused.to_string().contains("the cluster with the fingerprint"), "{refused}");

    assert!(!two.folder.path().join("pki").exists(), "nothing is left in the way of the right one");
    one.give_authority(&two);
    let second = two.start().await.expect("as one of two");
    until("it knows who leads", SOON, async || second.peers().len() == 2).await;
    assert!(!second.leads());
    assert_eq!(known(&second).await, before);
    let again = second.submit_all(vec![(task("7"), vec![])]).await.expect("known by its key");
    assert_eq!(again, [ids[7]]);
    assert_eq!(second.tokens().expect("given").list().len(), 1, "{token:?} goes with the cluster");
    let (found, trouble) = second.engine().expect("outside");
    assert!(found.starts_with(named) && trouble.is_none(), "{found} {trouble:?}");

    // Simulates that the first machine was cut off for longer than its lease.
    tokio::task::block_in_place(|| engine.depose());
    until("another leads", SOON, async || second.leads() || first.leads()).await;
    until("one of them leads", SOON, async || second.leads() != first.leads()).await;
    for coordinator in [&first, &second] {
        until("as before", SOON, async || known(coordinator).await == before).await;
    }
    // The present leader stops, and the other coordinator continues.
    let (leader, other) = if first.leads() { (&first, &second) } else { (&second, &first) };
    let began = Instant::now();
    leader.stop().await;
    let late = other.submit_all(vec![(task("late"), vec![])]).await.expect("after a pause");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(known(other).await.len(), 21);
    other.cancel(late[0]).await.expect("it waits");
    other.stop().await;
    let third = one.start().await.expect("free");
    until("it leads", SOON, async || third.leads()).await;
    assert_eq!(known(&third).await.len(), 21);
    third.stop().await;
}

pub(super) async fn what_runs_goes_on_while_it_is_away(engine: &mut impl Engine) {
    let one = Machine::new(engine);
    let coordinator = one.start().await.expect("free");
    until("it leads", SOON, async || coordinator.leads()).await;
    let before = coordinator.submit_all(vec![(task("a"), vec![])]).await.expect("durable");
    tokio::task::block_in_place(|| engine.kill());
    until("it is said", SOON, async || coordinator.engine().expect("outside").1.is_some()).await;
    let began = Instant::now();
    refused_token(&coordinator);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    // A task in memory is accepted; a durable one waits.
    let fleeting = TaskSpec { durable: false, idempotency_key: None, ..task("") };
    coordinator.submit(fleeting).expect("no engine is asked");
    let waiting = tokio::spawn({
        let coordinator = coordinator.clone();
        async move { coordinator.submit_all(vec![(task("b"), vec![])]).await }
    });
    until("its lease may be over", SOON, async || !coordinator.leads_now()).await;
    // As far as this coordinator knows, another one may lead by now and have seen the first task
    // end.
    let asked = tokio::spawn({
        let (coordinator, id) = (coordinator.clone(), before[0]);
        async move { coordinator.state_of(id).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished() && !asked.is_finished() && coordinator.leads());
    assert_eq!(coordinator.state(before[0]).expect("known"), TaskState::Queued);
    tokio::task::block_in_place(|| engine.run());
    match asked.await.expect("no panic") {
        Ok(state) => assert_eq!(state, TaskState::Queued),
        // The server took too long to start.
        Err(error) => assert!(matches!(error, Error::NoLeader { .. }), "{error}"),
    }
    waiting.await.expect("no panic").expect("durable now");
    until("all is well", SOON, async || coordinator.engine().expect("outside").1.is_none()).await;
    assert!(coordinator.leads());
    assert_eq!(known(&coordinator).await.len(), 3);
    coordinator.stop().await;
}

/// A write fails at once while the engine is known not to answer.
fn refused_token(coordinator: &Coordinator) {
    let tokens = coordinator.tokens().expect("given");
    let refused = tokens.create(1, Duration::from_secs(60)).expect_err("it cannot be kept");
    assert!(matches!(refused, Error::File { what: "write", .. }), "{refused}");
}

pub(super) async fn what_hangs_is_said_and_not_waited_for(
    engine: &impl Engine,
    hang: impl Fn(bool),
) {
    let one = Machine::new(engine);
    let coordinator = one.start().await.expect("free");
    until("it leads", SOON, async || coordinator.leads()).await;
    hang(true);
    let began = Instant::now();
    until("it is said", SOON, async || coordinator.engine().expect("outside").1.is_some()).await;
    refused_token(&coordinator);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    hang(false);
    until("all is well", SOON, async || coordinator.engine().expect("outside").1.is_none()).await;
    coordinator.tokens().expect("given").create(1, Duration::from_secs(60)).expect("it answers");
    coordinator.stop().await;
}
