//! Reads what a database keeps of a cluster, without becoming a member.

use super::authority::{engine, failed};
use super::members::{PRESENT, one};
use super::session::{ANSWER, Session};
use super::{Database, FORMAT, Trouble};
use crate::control::moving::marker::{MARKER, Marker};
use crate::control::view::ControlView;
use crate::error::{Error, Result};
use crate::net::coordinator::peers::Peer;

const STATE: &str = "
    SELECT (SELECT fingerprint FROM cluster),
        EXISTS (SELECT FROM lease WHERE name = 'lead' AND holder IS NOT NULL
            AND until > clock_timestamp()),
        (SELECT count(*) FROM record), (SELECT coalesce(sum(length(bytes)), 0)::bigint FROM record),
        (SELECT array_agg(name ORDER BY name COLLATE \"C\") FROM document),
        (SELECT bytes FROM document WHERE name = $1), number, digest FROM head";
/// Bytes before the value of a stored record.
const HEAD_BYTES: u64 = 8;

/// Reads the schema `name` without writing or waiting.
pub(crate) fn look(database: &Database, name: &str) -> Result<ControlView> {
    let session = Session::new(database);
    let format = format!("{name}.format");
    let found = session.ask(ANSWER, move |client| {
        let mut txn = client.build_transaction().read_only(true).start()?;
        let is_there: bool =
            txn.query_one("SELECT to_regclass($1) IS NOT NULL", &[&format])?.get(0);
        if !is_there {
            return Ok(None);
        }
        match txn.query_opt("SELECT version FROM format", &[])?.map(|row| row.get::<_, i32>(0)) {
            Some(FORMAT) => {}
            Some(found) => return Err(Trouble::TooNew(found)),
            None => return Ok(None),
        }
        let engine = engine(&mut txn)?;
        let state = txn.query_one(STATE, &[&MARKER])?;
        let present = txn.query(PRESENT, &[])?;
        Ok(Some((engine, state, present)))
    });
    let found = found.map_err(|trouble| failed("read", database, trouble))?;
    let place = database.label();
    let Some((engine, state, present)) = found else {
        let reason = format!("there is no cluster at {}", place.display());
        return Err(Error::Control { reason });
    };
    let count = |at: usize| state.get::<_, i64>(at).unsigned_abs();
    let marker: Option<Vec<u8>> = state.get(5);
    let path = || place.join(MARKER);
    let marker = marker.map(|bytes| Marker::decode(&bytes, path)).transpose()?;
    let closed = marker.and_then(|marker| marker.check(path()).err());
    let digest: Vec<u8> = state.get(7);
    let documents: Option<Vec<String>> = state.get(4);
    Ok(ControlView {
        place: place.display().to_string(),
        engine,
        cluster: state.get(0),
        coordinators: present.into_iter().map(one).filter_map(|it| Peer::of(&it)).collect(),
        is_led: state.get(1),
        records: count(2),
        bytes: Some(count(3).saturating_sub(count(2).saturating_mul(HEAD_BYTES))),
        documents: documents.into_iter().flatten().filter(|name| name != MARKER).collect(),
        last_commit: (count(6) > 0).then(|| (count(6), hex::encode(digest))),
        closed: closed.map(|error| error.to_string()),
    })
}
