//! Who leads: each coordinator that follows looks who does, and tries to where nobody does.

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
/// How long what keeps the lead may say nothing until that is said.
const SILENT: Duration = Duration::from_secs(3);
/// How often it takes documents as the one that leads wrote them.
const REREAD: Duration = Duration::from_secs(1);
/// How long what is being written may take when another leads.
const CLOSE: Duration = Duration::from_secs(10);
/// How long one that could not open the log, or leads no more, leaves the lead to others.
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
                // Nobody looks whether it answers any more.
                peers.lead.set_away(None);
                return;
            }
            () = change(&mut changes) => turn.reread_at = Instant::now(),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Waits until something may have changed, if that is told.
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
    /// Until when it leaves the lead to others, and why, if something is wrong.
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
            // Whatever kept it from leading may not keep others.
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
            // Another was faster.
            Err(Error::Led { .. }) => return,
            Err(error) => error,
        };
        tracing::error!(%error, "this coordinator cannot lead");
        let trouble = Some(error.to_string());
        self.abstains = Some((Instant::now() + ABSTAIN, trouble.clone()));
        peers.standing.send_modify(|standing| standing.trouble = trouble);
    }
}

/// Those that take part; documents are read again if wanted.
async fn look(peers: &Arc<Peers>, rereads: bool) -> Result<Vec<Peer>> {
    let peers = Arc::clone(peers);
    let looking = outside::blocking(move || {
        let members = peers.lead.members().ok_or(Error::Stopped)?;
        let present = members.present()?.iter().filter_map(Peer::of).collect();
        if rereads && let Err(error) = peers.lead.reread() {
            // The others are as they should be.
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
        // Where that fails, the lead is given up here.
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

/// Another leads, or is to: its tasks are that one's now.
async fn hand_over(coordinator: &Coordinator) {
    tracing::warn!("this coordinator leads no more; other coordinators go on with durable tasks");
    // Before anybody is sent elsewhere.
    if let Some(peers) = &coordinator.peers {
        peers.standing.send_modify(|standing| standing.leads = false);
    }
    let shared = Arc::clone(&coordinator.shared);
    if let Some(blob_store) = shared.blob_store() {
        // What hangs there is bounded, and nobody else waits for it.
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
