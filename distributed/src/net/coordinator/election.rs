//! Who leads: each follower looks who does, and tries to lead when no coordinator does.

use super::Coordinator;
use super::journal::{self, Prepared};
use super::peers::{Peer, Peers, Standing};
use crate::control::authority::{Leading, Members};
use crate::control::log::{Opener, Place};
use crate::error::{Error, Result};
use crate::net::outside;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often a coordinator looks who leads.
const LOOK: Duration = Duration::from_millis(200);
/// How long the engine that keeps the lead may be silent before that is reported.
const SILENT: Duration = Duration::from_secs(3);
/// How often a follower rereads the documents that the leader wrote.
const REREAD: Duration = Duration::from_secs(1);
/// How long writes under way may take when another coordinator leads.
const CLOSE: Duration = Duration::from_secs(10);
/// How long a coordinator that could not open the log, or lost the lead, does not try to lead.
const ABSTAIN: Duration = Duration::from_secs(2);

/// Runs until the coordinator stops.
pub(super) async fn run(coordinator: Coordinator, peers: Arc<Peers>, place: Arc<dyn Place>) {
    let mut stopping = peers.stopping.subscribe();
    let mut changes = peers.lead.members().and_then(Members::changes);
    let mut turn = Turn { reread_at: Instant::now(), abstains: None };
    loop {
        turn.take(&coordinator, &peers, &place).await;
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => {
                // From now on nothing looks whether the engine answers.
                peers.lead.set_away(None);
                return;
            }
            () = change(&mut changes) => turn.reread_at = Instant::now(),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Waits until something may have changed, if the engine tells that.
async fn change(changes: &mut Option<watch::Receiver<()>>) {
    if let Some(told) = changes
        && told.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// What a coordinator knows from one look to the next.
struct Turn {
    reread_at: Instant,
    /// Until when it does not try to lead, and what is wrong, if anything is.
    abstains: Option<(Instant, Option<String>)>,
}

impl Turn {
    async fn take(
        &mut self,
        coordinator: &Coordinator,
        peers: &Arc<Peers>,
        place: &Arc<dyn Place>,
    ) {
        let is_to_lead = still_leads(coordinator) && !peers.is_retired();
        if coordinator.leading().is_some() && !is_to_lead {
            hand_over(coordinator).await;
            // The reason why it lost the lead may not hold for others.
            self.abstains = Some((Instant::now() + ABSTAIN, None));
        }
        let leads = coordinator.leading().is_some();
        let rereads = !leads && self.reread_at <= Instant::now();
        if rereads {
            self.reread_at = Instant::now() + REREAD;
            place.follow();
        }
        let mut looking = pin!(look(peers, rereads));
        let looked = match tokio::time::timeout(SILENT, &mut looking).await {
            Ok(looked) => looked,
            Err(_) => {
                peers.set_away(format!("it has not answered for {} s", SILENT.as_secs()));
                looking.await
            }
        };
        match looked {
            Ok(present) => {
                peers.lead.set_away(None);
                let is_led = present.iter().any(|peer| peer.leads);
                self.abstains.take_if(|(until, _)| *until <= Instant::now());
                let trouble = self.abstains.as_ref().and_then(|(_, why)| why.clone());
                say(peers, Standing { leads, present, trouble: trouble.filter(|_| !is_led) });
                if rereads {
                    coordinator
                        .present
                        .send_revoked_away(|member| coordinator.pki.is_revoked(member));
                }
                if !leads && !is_led && self.abstains.is_none() && !peers.is_retired() {
                    self.try_to_lead(coordinator, peers, place).await;
                }
            }
            Err(error) => peers.set_away(error.to_string()),
        }
    }

    async fn try_to_lead(
        &mut self,
        coordinator: &Coordinator,
        peers: &Arc<Peers>,
        place: &Arc<dyn Place>,
    ) {
        let error = match lead(coordinator, peers, place).await {
            Ok(()) => return,
            // Another coordinator was faster.
            Err(Error::Led { .. }) => return,
            Err(error) => error,
        };
        tracing::error!(%error, "this coordinator cannot lead");
        let trouble = Some(error.to_string());
        self.abstains = Some((Instant::now() + ABSTAIN, trouble.clone()));
        peers.standing.send_modify(|standing| standing.trouble = trouble);
    }
}

/// The coordinators that take part; the documents are read again if wanted.
async fn look(peers: &Arc<Peers>, rereads: bool) -> Result<Vec<Peer>> {
    let peers = Arc::clone(peers);
    let looking = outside::blocking(move || {
        let members = peers.lead.members().ok_or(Error::Stopped)?;
        let present = members.present()?.iter().filter_map(Peer::of).collect();
        if rereads && let Err(error) = peers.lead.reread() {
            // The other documents are up to date.
            tracing::warn!(%error, "a document is as it was before");
        }
        Ok(present)
    });
    looking.await.map_err(|_| Error::Stopped)?
}

fn say(peers: &Peers, now: Standing) {
    peers.standing.send_if_modified(|standing| {
        let changed = *standing != now;
        *standing = now;
        changed
    });
}

fn still_leads(coordinator: &Coordinator) -> bool {
    let holds = coordinator.leading().as_ref().is_some_and(Leading::holds);
    holds && coordinator.shared.journal_error().is_none()
}

/// Takes the lead, and the log with it.
async fn lead(coordinator: &Coordinator, peers: &Arc<Peers>, place: &Arc<dyn Place>) -> Result<()> {
    let (lead, place, number) = (Arc::clone(&peers.lead), Arc::clone(place), peers.number);
    let path = coordinator.config.journal.clone().ok_or(Error::NoJournal)?;
    let blobs = coordinator.config.blobs.clone();
    let runtime = tokio::runtime::Handle::current();
    let pki = coordinator.pki.clone();
    let taking = outside::blocking(move || -> Result<(Leading, Prepared)> {
        let leading = lead.take(outside::unix_ms())?;
        pki.foresee_life()?;
        let opener = Opener { lead: leading.epoch(), epoch: number };
        let prepared = journal::open(&*place, (&path, blobs.as_ref()), opener, runtime)?;
        Ok((leading, prepared))
    });
    let (leading, prepared) = taking.await.map_err(|_| Error::Stopped)??;
    let epoch = leading.epoch();
    let shared = Arc::clone(&coordinator.shared);
    let slot = Arc::clone(&coordinator.leading);
    let taking = outside::blocking(move || {
        // If that fails, the lead is given up here.
        shared.take_over(prepared, epoch)?;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(leading);
        Ok::<_, Error>(())
    });
    taking.await.map_err(|_| Error::Stopped)??;
    tracing::info!(epoch, "this coordinator leads");
    let present = look(peers, false).await.unwrap_or_default();
    say(peers, Standing { leads: true, present, trouble: None });
    Ok(())
}

/// Another coordinator leads, or is about to: durable tasks belong to it now.
async fn hand_over(coordinator: &Coordinator) {
    tracing::warn!("this coordinator leads no more; other coordinators go on with durable tasks");
    // Set before any caller is sent elsewhere.
    if let Some(peers) = &coordinator.peers {
        peers.standing.send_modify(|standing| standing.leads = false);
    }
    let shared = Arc::clone(&coordinator.shared);
    if let Some(blob_store) = shared.blob_store() {
        // The wait for writes that hang is bounded, and nothing else waits for them.
        let closing = async {
            blob_store.close().await;
            shared.outputs_stored().await;
        };
        if tokio::time::timeout(CLOSE, closing).await.is_err() {
            tracing::warn!("tensors are still being written, of which nobody will know");
        }
    }
    if outside::blocking(move || shared.hand_over()).await.is_err() {
        tracing::error!("the journal's thread did not end well");
    }
    coordinator.resign().await;
}
