//! Opens a log: one transaction reads everything and makes a commit, after which the previous
//! leader writes nothing more.

use super::heart::stored;
use super::session::Session;
use super::{Database, Trouble};
use crate::control::chain::Link;
use crate::control::log::{Each, Opener};
use crate::control::record::{self, Key};
use crate::control::remembered::{self, Remembered};
use crate::error::JournalError;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Records that are read at once while the log is opened: few large ones, or many small ones.
const READ_AT_ONCE: [i32; 2] = [4, 256];
/// The size in bytes from which a batch of records counts as large.
const LARGE_BYTES: usize = 4 << 20;
/// How long reading a log may take.
const READING: Duration = Duration::from_secs(3600);

/// What a log held when it was opened.
pub(super) struct Found {
    pub(super) epochs: Vec<u64>,
    pub(super) opened: Link,
}

/// Reads everything and makes the commit, or changes nothing.
pub(super) fn read_all(
    session: &Session,
    database: &Database,
    (opener, file): (Opener, &Remembered),
    each: &mut Each<'_>,
) -> Result<Found, JournalError> {
    let (sender, records) = sync_channel::<(Key, Vec<u8>)>(1);
    let (verdict, judged) = channel::<bool>();
    let known = file.read()?;
    let damaged = |what| JournalError::Damaged { path: database.label(), what };
    // If `each` panics, its channel closes and the reading thread ends.
    std::thread::scope(move |scope| {
        let asked = scope.spawn(move || {
            session.ask(READING, move |client| open(client, (opener, known), sender, &judged))
        });
        let (records, verdict) = (records, verdict);
        let judgement = records.iter().try_for_each(|(key, stored)| {
            each(key, record::decode(key, &stored).map_err(damaged)?).map_err(damaged)
        });
        // After a refusal the remaining records are not awaited.
        drop(records);
        let _ = verdict.send(judgement.is_ok());
        let found = asked.join().unwrap_or_else(|_| Err(Trouble::Away("a panic".to_owned())));
        judgement?;
        found.map_err(|trouble| match trouble {
            Trouble::Older(what) => damaged(format!(
                "{what}: it is another cluster's, or was restored from a backup. To go on with what it \
                 has now, delete {}",
                file.0.display()
            )),
            trouble => trouble.on_log(database),
        })
    })
}

fn open(
    client: &mut postgres::Client,
    (opener, known): (Opener, Option<Link>),
    records: SyncSender<(Key, Vec<u8>)>,
    judged: &Receiver<bool>,
) -> Result<Found, Trouble> {
    let (lead, epoch) = (stored(opener.lead)?, stored(opener.epoch)?);
    let mut txn = client.transaction()?;
    // From here on nobody else makes a commit.
    let row = txn.query_one("SELECT number, digest, lead FROM head FOR UPDATE", &[])?;
    let last = Link { number: row.get(0), digest: row.get(1) };
    if row.get::<_, i64>(2) >= lead {
        return Err(Trouble::Locked);
    }
    if let Some(known) = known {
        let find = "SELECT digest FROM commit WHERE number = $1";
        let found: Option<Vec<u8>> = txn.query_opt(find, &[&known.number])?.map(|row| row.get(0));
        if let Some(what) = remembered::refuse(&known, &last, found.as_deref()) {
            return Err(Trouble::Older(what));
        }
    }
    let portal = txn.bind("SELECT epoch, seq, bytes FROM record ORDER BY epoch, seq", &[])?;
    let refused = || Trouble::Refused("what it holds is refused".to_owned());
    let [few, many] = READ_AT_ONCE;
    let mut at_once = few;
    loop {
        let rows = txn.query_portal(&portal, at_once)?;
        if rows.is_empty() {
            break;
        }
        let bytes: usize = rows.iter().map(|row| row.get::<_, &[u8]>(2).len()).sum();
        // Assumes that the next records have the same average size.
        let is_small = bytes / rows.len() < LARGE_BYTES / 256;
        at_once = if is_small { many } else { few };
        for row in rows {
            let (epoch, seq): (i64, i64) = (row.get(0), row.get(1));
            let key = (epoch.unsigned_abs(), seq.unsigned_abs());
            records.send((key, row.get(2))).map_err(|_| refused())?;
        }
    }
    drop(records);
    if judged.recv() != Ok(true) {
        return Err(refused());
    }
    let opened = last.opened(opener);
    txn.execute(
        "UPDATE head SET number = $1, digest = $2, lead = $3",
        &[&opened.number, &opened.digest, &lead],
    )?;
    txn.execute("INSERT INTO commit VALUES ($1, $2)", &[&opened.number, &opened.digest])?;
    txn.execute("INSERT INTO epoch VALUES ($1), ($2) ON CONFLICT DO NOTHING", &[&epoch, &lead])?;
    let epochs = txn.query("SELECT epoch FROM epoch ORDER BY epoch", &[])?;
    let epochs = epochs.iter().map(|row| row.get::<_, i64>(0).unsigned_abs()).collect();
    txn.commit()?;
    Ok(Found { epochs, opened })
}
