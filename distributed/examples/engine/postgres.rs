//! PostgreSQL with one row per record.

use crate::{Engine, Load, Result, Times, drive};
use postgres::{Client, NoTls, Statement};
use std::time::Duration;

struct Rows {
    client: Client,
    /// The statements for accepting and for ending tasks.
    one: [Statement; 2],
    many: [Statement; 2],
}

const ONE: [&str; 2] = [
    "INSERT INTO bare VALUES (1, $1, $2)",
    "UPDATE bare SET bytes = $2 WHERE epoch = 1 AND seq = $1",
];
const MANY: [&str; 2] = [
    "INSERT INTO bare
     SELECT 1, seq, bytes FROM unnest($1::bigint[], $2::bytea[]) AS new (seq, bytes)",
    // An UPDATE from unnest would read the whole table.
    "INSERT INTO bare
     SELECT 1, seq, bytes FROM unnest($1::bigint[], $2::bytea[]) AS new (seq, bytes)
     ON CONFLICT (epoch, seq) DO UPDATE SET bytes = excluded.bytes",
];

impl Engine for Rows {
    fn commit(&mut self, numbers: &[i64], bytes: &[u8], is_end: bool) -> Result<()> {
        let at = usize::from(is_end);
        match numbers {
            [number] => self.client.execute(&self.one[at], &[number, &bytes])?,
            _ => self.client.execute(&self.many[at], &[&numbers, &vec![bytes; numbers.len()]])?,
        };
        Ok(())
    }
}

pub(crate) fn run(address: &str, load: Load) -> Result<(Times, Duration)> {
    let mut client = Client::connect(address, NoTls)?;
    // The same table as the log's.
    client.batch_execute(
        "DROP TABLE IF EXISTS bare; CREATE TABLE bare (
            epoch bigint NOT NULL, seq bigint NOT NULL, bytes bytea NOT NULL, PRIMARY KEY (epoch, seq))",
    )?;
    drive(load, || {
        let mut client = Client::connect(address, NoTls)?;
        client.batch_execute("SET synchronous_commit TO on")?;
        let one = [client.prepare(ONE[0])?, client.prepare(ONE[1])?];
        let many = [client.prepare(MANY[0])?, client.prepare(MANY[1])?];
        Ok(Rows { client, one, many })
    })
}
