//! The laws of coordinators on two machines, on etcd and NATS.

use super::{Nats, client};
use crate::control::etcd::tests::depose_in;
use crate::control::etcd::tests::server::Etcd;
use crate::control::machines::{self, Engine, NAME};

/// A server of each engine.
struct Both(Etcd, Nats);

impl Engine for Both {
    fn address(&self) -> String {
        let (etcd, nats) = (self.0.endpoints().join(","), self.1.addresses().join(","));
        format!("etcd://{etcd},nats://{nats}")
    }

    fn depose(&self) {
        depose_in(&self.0, NAME);
    }

    fn kill(&mut self) {
        self.0.0[0].kill();
        self.1.0[0].kill();
    }

    fn run(&mut self) {
        self.0.run(0);
        self.1.run(0);
    }
}

/// Starts the servers, or skips the test with the reason.
async fn engines() -> Option<Both> {
    let start = || Ok::<_, String>(Both(Etcd::start(1)?, Nats::start(1)?));
    let started = tokio::task::spawn_blocking(start).await.expect("no panic");
    started.inspect_err(|reason| println!("skipped: etcd: {reason}")).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_goes_on_with_the_tasks() {
    let Some(engines) = engines().await else { return };
    machines::another_machine_goes_on_with_the_tasks(&engines, "etcd 3.").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_goes_on_while_the_engines_are_away() {
    let Some(mut engines) = engines().await else { return };
    machines::what_runs_goes_on_while_it_is_away(&mut engines).await;
    let state = tokio::task::block_in_place(|| client(&engines.1, NAME).info());
    assert!(state.expect("there").state.bytes > 6_000, "it is there");
}
