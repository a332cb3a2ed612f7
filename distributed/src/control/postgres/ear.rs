//! Hears at once when who leads, or a document, has changed. What is missed is found by looking.

use super::session::connect;
use super::{Database, Trouble};
use postgres::fallible_iterator::FallibleIterator as _;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tokio::sync::watch;

/// How long a lost connection is not made anew.
const PAUSE: Duration = Duration::from_secs(2);
/// How long it takes at most to hear that nobody listens any more.
const TURN: Duration = Duration::from_millis(500);

/// A connection that listens, until this is dropped.
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

/// Whether it is still listened for, after a pause.
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
    // Something may have changed before.
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
