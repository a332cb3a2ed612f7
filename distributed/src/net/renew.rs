//! A worker's identity, made anew before it expires, over the connection that it still opens.

use crate::config::WorkerConfig;
use crate::error::{Error, Result};
use crate::net::ask::{self, Ask, Certification, Certified};
use crate::net::enrol::JoinRefusal;
use crate::net::pki::{self, Identity};
use crate::net::role::Protocol;
use crate::net::{tls, transport, wire};
use quinn::{ClientConfig, Connection};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Time for the coordinator's answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Waits between attempts.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What a worker shows, for as long as it runs.
pub(super) struct Badge {
    shown: Mutex<(Identity, ClientConfig)>,
    keep_in: Option<PathBuf>,
    slots: u32,
}

impl Badge {
    /// The identity that a worker with so many devices was given.
    pub(super) fn new(config: &WorkerConfig, devices: usize) -> Result<Arc<Self>> {
        let identity = config.identity.clone();
        let slots = config.places().saturating_mul(u32::try_from(devices).unwrap_or(u32::MAX));
        let client = client(&identity, slots)?;
        let (shown, keep_in) = (Mutex::new((identity, client)), config.keep_in.clone());
        Ok(Arc::new(Self { shown, keep_in, slots }))
    }

    fn shown(&self) -> MutexGuard<'_, (Identity, ClientConfig)> {
        // It is replaced as a whole.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn identity(&self) -> Identity {
        self.shown().0.clone()
    }

    /// What the next connection is made with.
    pub(super) fn client(&self) -> ClientConfig {
        self.shown().1.clone()
    }

    /// Renews the identity whenever two thirds of its life have passed, until the connection ends or
    /// the coordinator refuses.
    pub(super) async fn keep_fresh(self: Arc<Self>, connection: Connection) {
        loop {
            let Ok(life) = self.until_due().await else { return };
            match self.renew(&connection).await {
                Ok(()) => {
                    tracing::info!("certificate renewed");
                    // A clock that is ahead makes every certificate look old.
                    tokio::time::sleep(life / 10).await;
                }
                Err(Error::JoinRefused { refusal, .. }) => {
                    return tracing::error!(%refusal, "the certificate is not renewed");
                }
                Err(error) => {
                    tracing::warn!(%error, "the certificate is not renewed yet");
                    tokio::time::sleep((life / 20).clamp(WAIT.0, WAIT.1)).await;
                }
            }
        }
    }

    /// Resolves with the life of the identity when it is to be renewed.
    async fn until_due(&self) -> Result<Duration> {
        let identity = self.identity();
        let (at_most, life) = due(&identity, SystemTime::now())?;
        let began = Instant::now();
        loop {
            // The timer stands still while the machine sleeps; the certificate's time does not.
            let (wait, _) = due(&identity, SystemTime::now())?;
            let wait = wait.min(at_most.saturating_sub(began.elapsed()));
            if wait.is_zero() {
                return Ok(life);
            }
            tokio::time::sleep(wait.min(WAIT.1)).await;
        }
    }

    async fn renew(&self, connection: &Connection) -> Result<()> {
        let old = self.identity();
        let (key, csr) = pki::request()?;
        let exchange = async {
            let (mut send, mut recv) = connection.open_bi().await.map_err(wire::lost)?;
            ask::write(&mut send, &Ask::Renew { name: old.name.clone(), csr }).await?;
            send.finish().map_err(wire::lost)?;
            ask::read::<Certification>(&mut recv).await
        };
        let answer = tokio::time::timeout(TIMEOUT, exchange).await;
        let addr = connection.remote_address();
        let refused = |refusal: JoinRefusal| Error::JoinRefused { addr, refusal };
        let answer = answer.map_err(|_| wire::lost("no answer came"))??;
        let Certified { cert_pem, .. } = answer.map_err(refused)?;
        let new = Identity { cert_pem, key_pem: key.serialize_pem(), ..old };
        let client = client(&new, self.slots)?;
        self.keep(&new).await?;
        // For the connections to come; this one goes on as it is.
        *self.shown() = (new, client);
        Ok(())
    }

    async fn keep(&self, identity: &Identity) -> Result<()> {
        let Some(folder) = self.keep_in.clone() else { return Ok(()) };
        let identity = identity.clone();
        tokio::task::spawn_blocking(move || identity.save(&folder)).await.map_err(wire::lost)?
    }
}

/// What a connection that shows this identity is made with.
fn client(identity: &Identity, slots: u32) -> Result<ClientConfig> {
    let mut client = ClientConfig::new(Arc::new(tls::client(identity, Protocol::Work)?));
    client.transport_config(transport::config(transport::streams_for(slots), 1));
    Ok(client)
}

/// How long until two thirds of an identity's life have passed, and how long that life is. The wait
/// is bounded by the life, whatever the clocks say.
fn due(identity: &Identity, now: SystemTime) -> Result<(Duration, Duration)> {
    let (from, until) = identity.validity()?;
    let life = until.duration_since(from).unwrap_or_default().saturating_sub(pki::SKEW);
    let spent = life * 2 / 3;
    let at = until.checked_sub(life - spent).unwrap_or(until);
    Ok((at.duration_since(now).unwrap_or_default().min(spent), life))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pki;

    #[test]
    fn two_thirds_of_the_life_pass_before_a_renewal() {
        let hours = |n: u64| Duration::from_secs(n * 3600);
        let pki = Pki::generate().expect("random numbers").with_certificate_life(hours(24));
        let identity = pki.issue_worker("w").expect("a name");
        let made = identity.validity().expect("sound").0 + pki::SKEW;
        for (now, expected) in [
            (made, hours(16)),
            (made + hours(10), hours(6)),
            (made + hours(17), hours(0)),
            (made + hours(1000), hours(0)),
            // A clock that is a year behind.
            (made - hours(365 * 24), hours(16)),
        ] {
            let (wait, life) = due(&identity, now).expect("sound");
            assert_eq!((wait, life), (expected, hours(24)), "{now:?}");
        }
    }
}
