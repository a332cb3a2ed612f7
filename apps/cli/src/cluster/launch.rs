//! Brings a coordinator and its local workers up, and down again.

use crate::cluster::digits;
use crate::cluster::driver::{DriverToCome, Fleet, LocalDriver, OWN_PREFIX};
use crate::failure::{Failure, Result};
use crate::folder;
use crate::logging::LogFormat;
use crate::loopback;
use crate::settings::{Keeping, Limits};
use crate::simd::Simd;
use lgp_distributed::{BlobsAt, Control, WorkerInfo, WorkerState};
use lgp_inference::Entry;
use lgp_sdk::cluster::{
    Coordinator, CoordinatorConfig, ModelRef, Pki, RepositoryFiles, Services, Tokens,
};
use lgp_sdk::device::DeviceId;
use lgp_sdk::model::{Repository, SessionOptions};
use lgp_server::{Deployment, ModelConfig, last_loaded};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the first workers may take to join.
const JOIN: Duration = Duration::from_secs(60);
/// How long to wait for a coordinator to lead.
const LEAD: Duration = Duration::from_secs(20);

/// The parts of a cluster to start.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The data folder.
    pub(crate) data: PathBuf,
    /// Where workers connect; port 0 picks a free one.
    pub(crate) quic: SocketAddr,
    /// The database that coordinators share, if it is not the data folder.
    pub(crate) control: Option<Control>,
    /// The store for data too large for a record, if it is not the data folder.
    pub(crate) blobs: Option<BlobsAt>,
    /// Where other coordinators reach this one, if not at `quic`.
    pub(crate) reached_at: Option<String>,
    /// The devices of each local worker.
    pub(crate) devices: Vec<DeviceId>,
    /// Bytes of each device's memory that models may take, if less than all.
    pub(crate) model_memory: Option<u64>,
    /// Local worker processes.
    pub(crate) workers: usize,
    /// The widest vector instructions that the workers use.
    pub(crate) simd: Simd,
    /// The form of the workers' log lines.
    pub(crate) log_format: LogFormat,
    /// How the workers batch tasks.
    pub(crate) limits: Limits,
    /// The time limit of a run where nothing else sets one, in seconds; 0 goes by measured runs.
    pub(crate) run_limit_s: u64,
    /// For how long results are kept, and on how much of the disk.
    pub(crate) keeping: Keeping,
    /// How long workers' certificates are valid before they must be renewed.
    pub(crate) certificate_life: Duration,
    /// How long members may be away with an expired certificate.
    pub(crate) absence_max: Duration,
}

impl Plan {
    /// The cluster's authority, made where there is none yet.
    ///
    /// # Errors
    /// When the authority in the data folder is damaged; `not_migrated`.
    pub(crate) fn authority(&self) -> Result<Pki> {
        if self.control.is_some() && folder::has_own_tasks(&self.data) {
            let journal = folder::journal(&self.data);
            let message = format!(
                "durable tasks lie in {}, and would be left behind where coordinators share others",
                journal.display()
            );
            return Err(Failure::new("not_migrated", message).hint(
                "take them along: radeon-cluster control migrate --to URL; or move that file away",
            ));
        }
        Ok(Pki::open_on(&folder::pki(&self.data), self.control.as_ref())?
            .with_certificate_life(self.certificate_life)
            .with_absence_max(self.absence_max))
    }
}

/// A running coordinator, its local workers and the models that it serves.
pub(crate) struct Cluster {
    pub(crate) coordinator: Coordinator,
    pub(crate) driver: LocalDriver,
    pub(crate) repository: Repository,
    /// The bundled model, loaded by every worker.
    pub(crate) digits: ModelRef,
    /// The certificate authority by which machines recognise the cluster, and the data kept with it.
    pub(crate) pki: Pki,
}

impl Cluster {
    /// Starts everything; when this returns, every worker is ready and has the models.
    ///
    /// # Errors
    /// `no_loopback`, `address_in_use`, `worker_start_failed`, or the failure of a model.
    pub(crate) async fn launch(plan: &Plan, pki: Pki, url: Option<String>) -> Result<Self> {
        // Without loopback, workers would never reach the coordinator.
        loopback::check()?;
        let models = folder::models(&plan.data);
        let repository = Repository::open(&models)?;
        // No other coordinator uses the data folder, and workers only read it.
        repository.sweep()?;
        let digits = digits::register(&repository)?;
        let to_come = Arc::new(DriverToCome::default());
        let services = Services {
            tokens: Some(Tokens::open(&pki)?),
            models: Some(Arc::new(RepositoryFiles(repository.clone()))),
            reserved_prefix: Some(OWN_PREFIX.to_owned()),
            supervisor: Some(Arc::clone(&to_come) as _),
        };
        let config = CoordinatorConfig {
            quic_addr: plan.quic,
            journal: Some(folder::journal(&plan.data)),
            control: plan.control.clone(),
            blobs: plan.blobs.clone(),
            reached_at: plan.reached_at.clone(),
            url,
            mirrored: plan.control.as_ref().map(|_| models.clone()),
            input_bytes_max: plan.limits.input_bytes_max,
            run_limit_s: plan.run_limit_s,
            ..CoordinatorConfig::default()
        };
        let config = plan.keeping.apply(&plan.data, config)?;
        let coordinator = Coordinator::start_with(config, &pki, services).await?;
        let driver = LocalDriver::new(Fleet {
            coordinator: coordinator.clone(),
            pki: pki.clone(),
            devices: plan.devices.clone(),
            model_memory: plan.model_memory,
            models,
            log: folder::worker_log(&plan.data),
            cores: SessionOptions::default().threads,
            simd: plan.simd,
            log_format: plan.log_format,
            limits: plan.limits,
        });
        to_come.came(&driver);
        let cluster = Self { coordinator, driver, repository, digits, pki };
        match cluster.bring_up(plan).await {
            Ok(()) => Ok(cluster),
            Err(failure) => {
                cluster.shut_down().await;
                Err(failure)
            }
        }
    }

    async fn bring_up(&self, plan: &Plan) -> Result<()> {
        self.until_led().await?;
        let log = folder::worker_log(&plan.data);
        // Lines of earlier runs do not explain why this run fails.
        let before = log.metadata().map_or(0, |file| file.len());
        self.driver.resize(plan.workers);
        tokio::select! {
            () = self.until_ready(plan.workers) => {}
            failure = self.driver.broken() => {
                let said = last_line(&log, before).map_or(String::new(), |line| format!(": {line}"));
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
            let Err(error) = result else { continue };
            let message = format!("worker {worker} cannot load {}: {error}", self.digits);
            // A remote machine that is back already must not keep the cluster from starting.
            if worker.as_str().starts_with(OWN_PREFIX) {
                return Err(Failure::new("model_failed", message));
            }
            tracing::warn!("{message}");
        }
        self.load_registered().await
    }

    /// Resolves once a coordinator leads, this one or another.
    async fn until_led(&self) -> Result<()> {
        let coordinator = &self.coordinator;
        let is_led = || coordinator.leads() || coordinator.peers().iter().any(|peer| peer.leads);
        let began = Instant::now();
        while !is_led() {
            if began.elapsed() > LEAD {
                let why = coordinator.engine().and_then(|(_, trouble)| trouble);
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                let seconds = LEAD.as_secs();
                let message = format!("no coordinator came to lead within {seconds} s{why}");
                return Err(Failure::new("no_leader", message)
                    .hint("check that what --control names runs, and is reached from here"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Resolves once `workers` local workers are ready; remote ones do not count.
    async fn until_ready(&self, workers: usize) {
        let own =
            |w: &WorkerInfo| w.state == WorkerState::Ready && w.id.as_str().starts_with(OWN_PREFIX);
        while self.coordinator.workers().iter().filter(|w| own(w)).count() < workers {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Loads the versions of every model that its policy chooses, else those that were loaded last, else the newest.
    /// The bundled model is unloaded where a user's versions of that name replace it.
    async fn load_registered(&self) -> Result<()> {
        let mut registered: BTreeMap<String, Vec<ModelRef>> = BTreeMap::new();
        for entry in self.repository.list()? {
            // A model whose own file contradicts it says why in the index, and does not keep others from serving.
            let config = ModelConfig::of(&self.repository, &entry.name);
            let fits = config.and_then(|config| config.check(&self.repository, &entry));
            let Entry { name, version, sha256, .. } = entry;
            if let Err(error) = fits {
                tracing::warn!(name, version, %error, "a registered model is not loaded");
                continue;
            }
            let of_name = registered.entry(name.clone()).or_default();
            of_name.push(ModelRef { name, version, sha256 });
        }
        for (name, models) in registered {
            let deployment = Deployment::of(&self.repository, &name)
                .inspect_err(|error| tracing::warn!(name, %error, "its deployment is not used"))
                .unwrap_or_default();
            let mut loaded = false;
            let (wanted, is_said) = self.wanted(&name, &deployment, &models);
            for model in models.iter().filter(|model| wanted.contains(&model.version)) {
                if *model != self.digits {
                    loaded |= self.load_one(model, &deployment).await?;
                }
            }
            let makes_room = loaded || is_said;
            if makes_room && name == self.digits.name && !wanted.contains(&self.digits.version) {
                self.coordinator.unload(&self.digits);
            }
        }
        Ok(())
    }

    /// The versions of a model to load, and whether a policy or the last run chose them.
    fn wanted(&self, name: &str, deployment: &Deployment, models: &[ModelRef]) -> (Vec<u64>, bool) {
        let mut versions: Vec<u64> = models.iter().map(|model| model.version).collect();
        if let Some(policy) = &deployment.version_policy {
            return (policy.choose(&versions), true);
        }
        let last = last_loaded(&self.repository, name)
            .inspect_err(|error| tracing::warn!(name, %error, "its newest version is loaded"))
            .unwrap_or_default();
        match last {
            Some(last) => {
                // A version that was added while nothing ran counts as added now.
                versions.retain(|v| last.loaded.contains(v) || !last.known.contains(v));
                (versions, true)
            }
            None => (versions.last().copied().into_iter().collect(), false),
        }
    }

    /// Loads a model; answers whether any worker loaded it.
    async fn load_one(&self, model: &ModelRef, deployment: &Deployment) -> Result<bool> {
        let needs = deployment.needs(&self.repository, model);
        let mut loaded = false;
        for (worker, result) in self.coordinator.load_where(model.clone(), needs).await? {
            match result {
                Ok(()) => loaded = true,
                // One bad model must not keep the others from being served.
                Err(error) => {
                    tracing::warn!(%worker, %model, %error, "a registered model does not load");
                }
            }
        }
        Ok(loaded)
    }

    /// Ends the coordinator, then its workers. Unfinished work is lost.
    pub(crate) async fn shut_down(&self) {
        self.coordinator.stop().await;
        self.driver.end().await;
    }
}

/// The last line of a log after its first `skip` bytes.
fn last_line(log: &Path, skip: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    file.seek(SeekFrom::Start(skip)).ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    String::from_utf8_lossy(&text)
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_run_is_quoted() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), "old\n").expect("ours");
        assert_eq!(last_line(file.path(), 4), None);
        std::fs::write(file.path(), "old\nnew\n\n").expect("ours");
        assert_eq!(last_line(file.path(), 4).as_deref(), Some("new"));
    }
}
