//! Brings a coordinator and its local workers up, and down again.

use crate::cluster::digits;
use crate::cluster::driver::{Fleet, LocalDriver};
use crate::commands::run::cores;
use crate::failure::{Failure, Result};
use crate::folder;
use lgp_sdk::{Coordinator, CoordinatorConfig, DeviceId, ModelRef, Pki, Repository};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long the first workers may take to join.
const JOIN: Duration = Duration::from_secs(60);

/// What to bring up.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The data folder.
    pub(crate) data: PathBuf,
    /// Where workers connect; port 0 picks a free one.
    pub(crate) quic: SocketAddr,
    /// The device of local workers.
    pub(crate) device: DeviceId,
    /// Local worker processes.
    pub(crate) workers: usize,
}

/// A running coordinator, its local workers and the models that it serves.
pub(crate) struct Cluster {
    pub(crate) coordinator: Coordinator,
    pub(crate) driver: LocalDriver,
    pub(crate) repository: Repository,
    /// The bundled model, loaded by every worker.
    pub(crate) digits: ModelRef,
}

impl Cluster {
    /// Starts everything; when this returns, every worker is ready and has the models.
    ///
    /// # Errors
    /// `address_in_use`, `worker_start_failed`, or what became of a model.
    pub(crate) async fn launch(plan: &Plan) -> Result<Self> {
        let models = folder::models(&plan.data);
        let repository = Repository::open(&models)?;
        let digits = digits::register(&repository)?;
        let pki = Pki::generate()?;
        let config = CoordinatorConfig { quic_addr: plan.quic, ..CoordinatorConfig::default() };
        let coordinator = Coordinator::start(config, &pki).await?;
        let driver = LocalDriver::new(Fleet {
            coordinator: coordinator.clone(),
            pki,
            device: plan.device,
            models,
            log: folder::worker_log(&plan.data),
            cores: cores(),
        });
        let cluster = Self { coordinator, driver, repository, digits };
        match cluster.bring_up(plan).await {
            Ok(()) => Ok(cluster),
            Err(failure) => {
                cluster.shut_down().await;
                Err(failure)
            }
        }
    }

    async fn bring_up(&self, plan: &Plan) -> Result<()> {
        self.driver.resize(plan.workers);
        let log = folder::worker_log(&plan.data);
        tokio::select! {
            ready = self.coordinator.wait_for_workers(plan.workers) => ready?,
            failure = self.driver.broken() => {
                let said = last_line(&log).map_or(String::new(), |line| format!(": {line}"));
                return Err(Failure { message: failure.message + &said, ..failure }
                    .hint(format!("their log is {}", log.display())));
            }
            () = tokio::time::sleep(JOIN) => {
                let message = format!("the workers did not join within {} s", JOIN.as_secs());
                return Err(Failure::new("worker_start_failed", message)
                    .hint(format!("their log is {}", log.display())));
            }
        }
        for (worker, result) in self.coordinator.load(self.digits.clone()).await? {
            result.map_err(|error| {
                let message = format!("worker {worker} cannot load {}: {error}", self.digits);
                Failure::new("model_failed", message)
            })?;
        }
        self.load_registered().await
    }

    /// Loads the newest version of every other model that an earlier run registered.
    async fn load_registered(&self) -> Result<()> {
        let newest: BTreeMap<String, ModelRef> = self
            .repository
            .list()?
            .into_iter()
            .map(|e| ModelRef { name: e.name, version: e.version, sha256: e.sha256 })
            .filter(|model| model.name != self.digits.name)
            .fold(BTreeMap::new(), |mut newest: BTreeMap<String, ModelRef>, model| {
                if newest.get(&model.name).is_none_or(|known| known.version < model.version) {
                    newest.insert(model.name.clone(), model);
                }
                newest
            });
        for model in newest.into_values() {
            for (worker, result) in self.coordinator.load(model.clone()).await? {
                // One bad model must not keep the others from being served.
                if let Err(error) = result {
                    tracing::warn!(%worker, %model, %error, "a registered model does not load");
                }
            }
        }
        Ok(())
    }

    /// Ends the coordinator, then its workers. What is not done by now is lost.
    pub(crate) async fn shut_down(&self) {
        self.coordinator.stop().await;
        self.driver.end().await;
    }
}

fn last_line(log: &std::path::Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
}
