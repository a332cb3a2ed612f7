//! The laws of log and authority on a PostgreSQL server of Debian, and what only such an engine can do.

mod machines;
mod server;

use super::{Database, PostgresAuthority, PostgresLog};
use crate::control::authority;
use crate::control::conformance::{self, Bounded, open, put};
use crate::control::log::{Change, Each, Opened, Place};
use crate::error::{Error, JournalError};
use postgres::NoTls;
use server::Server;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Long beside what a test does between two renewals.
const LEASE: Duration = Duration::from_secs(2);

/// The server, or why the test is skipped.
macro_rules! server {
    () => {
        match Server::start() {
            Ok(server) => server,
            Err(reason) => return println!("skipped: postgresql: {reason}"),
        }
    };
}

fn database(server: &Server, schema: &str) -> Database {
    Database::new(&server.address(), schema, LEASE).expect("a database")
}

/// Does something as an administrator of the server would.
fn sql(server: &Server, text: &str) {
    let mut client = postgres::Client::connect(&server.address(), NoTls).expect("it runs");
    client.batch_execute(text).expect("it does as it is told");
}

/// A log whose room a trigger decides on.
struct Limited<'a>(&'a Server, PostgresLog);

impl Place for Limited<'_> {
    fn open(&self, now_ms: u64, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        self.1.open(now_ms, each)
    }
}

impl Bounded for Limited<'_> {
    fn limit(&self, more_bytes: Option<usize>) {
        let more = more_bytes.map_or("NULL".to_owned(), |more| more.to_string());
        sql(
            self.0,
            &format!(
                "SET search_path TO limited;
                 CREATE TABLE IF NOT EXISTS room (most bigint); DELETE FROM room;
                 INSERT INTO room SELECT {more} + coalesce(sum(length(bytes)), 0) FROM record;
                 CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     IF (SELECT sum(length(bytes)) FROM limited.record) > (SELECT most FROM limited.room)
                     THEN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END IF;
                     RETURN NULL; END $$;
                 CREATE OR REPLACE TRIGGER room AFTER INSERT OR UPDATE ON record
                     EXECUTE FUNCTION refuse();"
            ),
        );
    }
}

#[test]
fn the_laws_are_obeyed() {
    let server = server!();
    for (i, law) in conformance::LAWS.into_iter().enumerate() {
        law(&PostgresLog(database(&server, &format!("log_{i}"))));
    }
    let limited = PostgresLog(database(&server, "limited"));
    drop(open(&limited, 1).expect("free"));
    conformance::changes_of_a_ticket_are_there_whole_or_not_at_all(&Limited(&server, limited));
    let views = std::cell::Cell::new(0);
    authority::conformance::check(&|| {
        views.set(views.get() + 1);
        Box::new(PostgresAuthority::open(database(&server, "authority")).expect("reachable"))
    });
    assert!(views.get() > 4);
}

#[test]
fn who_was_deposed_writes_nothing() {
    let server = server!();
    // What other programs want of their database is not what a log needs.
    sql(&server, "ALTER DATABASE postgres SET default_transaction_isolation TO 'serializable'");
    let place = PostgresLog(database(&server, "deposed"));
    let first = open(&place, 1).expect("free");
    first.log.submit(1, put(1, 10).into()).expect("taken");
    assert_eq!(first.fates(1..=1), [(1, true)].into());
    // As if it had slept for longer than its lease.
    sql(&server, "UPDATE deposed.lease SET until = '-infinity' WHERE name = 'log'");
    let second = open(&place, 1).expect("free again");
    assert_eq!(second.found.len(), 1);
    first
        .log
        .submit(2, vec![put(2, 10), Change::Remove { epoch: 7, seq: 1 }].into())
        .expect("taken");
    let told = first.outcomes.recv_timeout(Duration::from_secs(60)).expect("it is told");
    let told = format!("{told:?}");
    assert!(told.contains("Broken") && told.contains("another coordinator leads"), "{told}");
    first.log.submit(3, put(3, 1).into()).expect_err("it takes nothing more");
    second.log.submit(1, put(4, 10).into()).expect("taken");
    assert_eq!(second.fates(1..=1), [(1, true)].into());
    drop(first);
    drop(second);
    let third = open(&place, 1).expect("the first one's end does not free the second one's");
    let found: Vec<u64> = third.found.into_keys().map(|key| key.1).collect();
    assert_eq!(found, [1, 4]);
}

#[test]
fn lost_connections_and_killed_servers_lose_nothing() {
    let mut server = server!();
    let place = PostgresLog(database(&server, "lost"));
    let running = open(&place, 1).expect("free");
    let is_done = AtomicBool::new(false);
    let mut expected = BTreeMap::new();
    let address = server.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = postgres::Client::connect(&address, NoTls).expect("it runs");
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE application_name = 'radeon-cluster'";
            while !is_done.load(Ordering::Relaxed) {
                client.batch_execute(end).expect("allowed");
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        for ticket in 1..=300 {
            // A removal that came twice, or a value of before, would show.
            let change = match ticket % 3 {
                0 => Change::Remove { epoch: 7, seq: ticket - 1 },
                _ => put(ticket, 20),
            };
            match &change {
                Change::Put(record) => expected.insert(record.seq, record.bytes.clone()),
                Change::Remove { seq, .. } => expected.remove(seq),
            };
            running.log.submit(ticket, change.into()).expect("taken");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(running.fates(1..=300).values().all(|durable| *durable));
        is_done.store(true, Ordering::Relaxed);
    });
    server.kill();
    running.log.submit(301, put(400, 20).into()).expect("taken, for the time being");
    std::thread::sleep(Duration::from_millis(300));
    server.run();
    assert_eq!(running.fates(301..=301), [(301, true)].into());
    drop(running);
    let found = open(&place, 1).expect("free").found;
    let found: BTreeMap<u64, Vec<u8>> = found.into_iter().map(|(key, x)| (key.1, x)).collect();
    expected.insert(400, vec![400 % 251; 20].into_iter().map(|x: u32| x as u8).collect());
    assert_eq!(found, expected);
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_written() {
    let server = server!();
    for (address, part) in [("nonsense", "no address"), ("postgres://[", "no address")] {
        let error = Database::new(address, "s", LEASE).expect_err(address);
        assert!(error.contains(part), "{error}");
    }
    for address in ["postgres://10.0.0.5/x", "postgres://localhost/x?hostaddr=10.0.0.5"] {
        let error = Database::new(address, "s", LEASE).expect_err(address);
        assert!(error.contains("10.0.0.5 is reached over the network"), "{error}");
    }
    for name in ["", "A", "a-b", "a;drop", &"a".repeat(41)] {
        let error = Database::new(&server.address(), name, LEASE).expect_err(name);
        assert!(error.contains("no name of a schema"), "{error}");
    }
    let nobody = Database::new("postgres://postgres@127.0.0.1:1/postgres", "s", LEASE);
    let error = open(&PostgresLog(nobody.expect("well formed")), 1).err().expect("nobody answers");
    assert!(matches!(error, JournalError::Io { .. }), "{error}");
    let newer = database(&server, "newer");
    drop(open(&PostgresLog(newer.clone()), 1).expect("free"));
    sql(&server, "UPDATE newer.format SET version = 9");
    let error = open(&PostgresLog(newer.clone()), 1).err().expect("of a later program");
    assert!(matches!(error, JournalError::TooNew { found: 9, supported: 1, .. }), "{error}");
    let error = PostgresAuthority::open(newer).expect_err("likewise");
    assert!(matches!(error, Error::File { .. }), "{error}");
    let damaged = PostgresLog(database(&server, "damaged"));
    let running = open(&damaged, 1).expect("free");
    running.log.submit(1, put(1, 10).into()).expect("taken");
    drop(running);
    sql(&server, "UPDATE damaged.record SET bytes = set_byte(bytes, 9, 99)");
    let error = open(&damaged, 1).err().expect("a byte is another");
    assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
}
