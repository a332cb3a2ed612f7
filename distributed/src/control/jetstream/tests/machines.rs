//! Coordinators on two machines, which have the cluster's authority each, and both engines.

use super::{Nats, client};
use crate::control::etcd::tests::server::Etcd;
use crate::net::coordinator::gate::Services;
use crate::{
    Control, Coordinator, CoordinatorConfig, Error, ModelRef, Pki, TaskFilter, TaskId, TaskSpec,
    TaskState, Tokens,
};
use lgp_memory::{NamedTensor, Tensor};
use std::path::Path;
use std::time::Duration;

/// What a machine has of its own: a data folder.
struct Machine {
    folder: tempfile::TempDir,
    control: Control,
}

impl Machine {
    fn new(address: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder, control: Control::new(address, "machines").expect("both") }
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

    /// Gives another machine the authority's certificate and key.
    fn give_authority(&self, other: &Self) {
        let name = Path::new("pki");
        let (from, to) = (self.folder.path().join(name), other.folder.path().join(name));
        crate::control::files::make_private_folder(&to).expect("a new folder");
        std::fs::copy(from.join("authority.pem"), to.join("authority.pem")).expect("there");
    }
}

fn task(key: &str) -> TaskSpec {
    let model = ModelRef { name: "echo".into(), version: 1, sha256: "00".repeat(32) };
    let x = Tensor::from_slice([3_000], &[1_u8; 3_000]).expect("small");
    let mut spec = TaskSpec::new(model, vec![NamedTensor::new("x", x)]);
    spec.idempotency_key = Some(key.into());
    spec.durable = true;
    spec
}

async fn known(coordinator: &Coordinator) -> Vec<(TaskId, TaskState)> {
    let listed = coordinator.tasks(&TaskFilter::default()).await.expect("readable").tasks;
    listed.into_iter().rev().map(|task| (task.task_id, task.state)).collect()
}

fn engines() -> Result<(Etcd, Nats), String> {
    Ok((Etcd::start(1)?, Nats::start(1)?))
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_goes_on_with_the_tasks() {
    let (etcd, nats) = match tokio::task::spawn_blocking(engines).await.expect("no panic") {
        Ok(engines) => engines,
        Err(reason) => return println!("skipped: etcd: {reason}"),
    };
    let address =
        format!("etcd://{},nats://{}", etcd.endpoints().join(","), nats.addresses().join(","));
    let (one, two) = (Machine::new(&address), Machine::new(&address));
    let first = one.start().await.expect("free");
    let ids = first.submit_all((0..20).map(|at| (task(&at.to_string()), vec![])).collect());
    let ids = ids.await.expect("durable");
    let token = first.tokens().expect("given").create(1, Duration::from_secs(60)).expect("a token");
    let before = known(&first).await;
    assert_eq!(before.len(), 20);

    one.give_authority(&two);
    let refused = two.start().await.expect_err("the first one leads");
    assert!(matches!(refused, Error::Led { .. }), "{refused}");

    // As if the first machine were cut off for longer than its lease.
    tokio::task::block_in_place(|| crate::control::etcd::tests::depose_in(&etcd, "machines"));
    let second = two.start().await.expect("free again");
    assert!(second.epoch() > first.epoch());
    assert_eq!(known(&second).await, before);
    assert_eq!(second.tokens().expect("given").list().len(), 1, "{token:?} goes with the cluster");

    let late = first.submit_all(vec![(task("late"), vec![])]).await;
    assert!(late.is_err(), "who was deposed acknowledges nothing: {late:?}");
    let again = second.submit_all(vec![(task("7"), vec![])]).await.expect("known by its key");
    assert_eq!(again, [ids[7]]);
    first.stop().await;
    second.stop().await;
    let third = one.start().await.expect("free");
    assert_eq!(known(&third).await, before, "nothing of the deposed one's");
    third.stop().await;
    let state = tokio::task::block_in_place(|| client(&nats, "machines").info());
    assert!(state.expect("there").state.bytes > 60_000, "it is there");
}
