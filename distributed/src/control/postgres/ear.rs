//! Listens for changes of the leader or of a document. Polling finds what a notification missed.

use super::session::connect;
use super::{Database, Trouble};
use postgres::fallible_iterator::FallibleIterator as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tokio::sync::watch;

/// The pause before a lost connection is made again.
const PAUSE: Duration = Duration::from_secs(2);
/// How long it may take to notice that nobody listens any more.
const TURN: Duration = Duration::from_millis(500);

/// A listening connection, until this is dropped.
#[derive(Debug)]
pub(super) struct Ear {
    pub(super) heard: watch::Receiver<()>,
    _stop: mpsc::Sender<()>,
}

impl Ear {
    pub(super) fn start(database: &Database) -> Result<Self, Trouble> {
        let (hears, heard) = watch::channel(());
        let (stop, stopped) = mpsc::channel();
        let database = database.clone();
        let run = move || {
            while is_wanted(&stopped, Duration::ZERO) {
                if let Err(trouble) = listen(&database, &hears, &stopped) {
                    tracing::debug!(why = trouble.text(), "changes are found by looking");
                    is_wanted(&stopped, PAUSE);
                }
            }
        };
        let thread = thread::Builder::new().name("listen".into()).spawn(run);
        thread.map_err(|error| Trouble::Refused(error.to_string()))?;
        Ok(Self { heard, _stop: stop })
    }
}

/// Waits for the pause; returns whether a listener is still wanted.
fn is_wanted(stopped: &mpsc::Receiver<()>, pause: Duration) -> bool {
    stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
}

fn listen(
    database: &Database,
    hears: &watch::Sender<()>,
    stopped: &mpsc::Receiver<()>,
) -> Result<(), Trouble> {
    let mut client = connect(database)?;
    client.batch_execute(&format!("LISTEN {}", database.schema))?;
    // Something may have changed before the connection.
    hears.send_replace(());
    while is_wanted(stopped, Duration::ZERO) {
        if client.notifications().timeout_iter(TURN).next()?.is_some() {
            hears.send_replace(());
        } else if client.is_closed() {
            return Err(Trouble::Away("the connection was closed".to_owned()));
        }
    }
    Ok(())
}
