//! Membership of coordinators in the database.

use super::PostgresAuthority;
use super::heart::stored;
use crate::control::authority::{Members, Present};
use crate::error::Result;
use crate::proto::histogram::ms;
use tokio::sync::watch;

/// Adds a member. It also deletes crashed members after an hour.
const ENTER: &str = "
    WITH next AS (UPDATE counter SET number = GREATEST(number + 1, $2) RETURNING number),
    gone AS (DELETE FROM member WHERE until < clock_timestamp() - interval '1 hour' AND holder <> $1)
    INSERT INTO member (holder, number, about, until)
    SELECT $1, number, $3, clock_timestamp() + $4 * interval '1 millisecond' FROM next
    ON CONFLICT (holder) DO UPDATE
        SET number = excluded.number, about = excluded.about, until = excluded.until
    RETURNING number";
pub(super) const PRESENT: &str = "
    SELECT number, lease.holder IS NOT NULL AND lease.until > clock_timestamp(), about
    FROM member LEFT JOIN lease ON lease.holder = member.holder
    WHERE member.until > clock_timestamp() ORDER BY 2 DESC, 1";

pub(super) fn one(row: postgres::Row) -> Present {
    Present { number: row.get::<_, i64>(0).unsigned_abs(), leads: row.get(1), about: row.get(2) }
}

impl Members for PostgresAuthority {
    fn enter(&self, now_ms: u64, about: &[u8]) -> Result<u64> {
        let failed = self.failed("take part in");
        let now = stored(now_ms).map_err(&failed)?;
        let (holder, about) = (self.holder.clone(), about.to_vec());
        let time = ms(self.database.lease);
        let entered = self.session.call(move |client| {
            client.query_one(ENTER, &[&holder, &now, &about, &time]).map(|row| row.get(0))
        });
        let number: i64 = entered.map_err(&failed)?;
        Ok(number.unsigned_abs())
    }

    fn present(&self) -> Result<Vec<Present>> {
        let found = self.session.call(|client| client.query(PRESENT, &[]));
        Ok(found.map_err(self.failed("read"))?.into_iter().map(one).collect())
    }

    fn changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.ear.heard.clone())
    }

    fn engine(&self) -> String {
        self.engine.clone()
    }
}
