//! The laws of coordinators on two machines, on one database.

use super::{Server, sql};
use crate::control::machines::{self, Engine, NAME};

impl Engine for Server {
    fn address(&self) -> String {
        Self::address(self)
    }

    fn depose(&self) {
        let text = format!("UPDATE {NAME}.lease SET until = '-infinity', holder = 'nobody'");
        sql(self, &text);
    }

    fn kill(&mut self) {
        Self::kill(self);
    }

    fn run(&mut self) {
        Self::run(self);
    }
}

/// Starts the server, or skips the test with the reason.
async fn server() -> Option<Server> {
    let started = tokio::task::spawn_blocking(Server::start).await.expect("no panic");
    started.inspect_err(|reason| println!("skipped: postgresql: {reason}")).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_goes_on_with_the_tasks() {
    let Some(server) = server().await else { return };
    machines::another_machine_goes_on_with_the_tasks(&server, "PostgreSQL 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_goes_on_while_the_database_is_away() {
    let Some(mut server) = server().await else { return };
    machines::what_runs_goes_on_while_it_is_away(&mut server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_hangs_is_said_to() {
    let Some(server) = server().await else { return };
    let hang = |hangs| server.signal(if hangs { "STOP" } else { "CONT" });
    machines::what_hangs_is_said_and_not_waited_for(&server, hang).await;
}
