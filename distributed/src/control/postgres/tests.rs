//! The laws of log and authority on Debian's PostgreSQL server, and what only such an engine can
//! do.

mod machines;
mod moving;
mod server;
mod tls;

use super::{Database, PostgresAuthority, PostgresLog};
use crate::control::authority::conformance as laws;
use crate::control::authority::{Authority, Members};
use crate::control::conformance::{self, Bounded, open, put};
use crate::control::log::{Change, Each, Opened, Opener, Place};
use crate::error::{Error, JournalError};
use postgres::NoTls;
use server::Server;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Long compared with a test's steps between two renewals.
const LEASE: Duration = Duration::from_secs(2);

/// Starts the server, or skips the test with the reason.
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

/// A log in a schema, whose last known commit is stored in the server's folder.
fn log(server: &Server, schema: &str) -> PostgresLog {
    PostgresLog::new(database(server, schema), server.beside(&format!("{schema}.last")))
}

fn authority(server: &Server, schema: &str) -> PostgresAuthority {
    PostgresAuthority::open(database(server, schema), "one").expect("reachable")
}

/// Runs SQL as an administrator of the server.
fn sql(server: &Server, text: &str) {
    let mut client = postgres::Client::connect(&server.address(), NoTls).expect("it runs");
    client.batch_execute(text).expect("it does as it is told");
}

/// A log whose room a trigger limits.
struct Limited<'a>(&'a Server, PostgresLog);

impl Place for Limited<'_> {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        self.1.open(opener, each)
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
    // The log does not depend on the defaults of its database.
    sql(&server, "ALTER DATABASE postgres SET default_transaction_isolation TO 'serializable'");
    conformance::check_shared(&|at| Box::new(log(&server, &format!("log_{at}"))));
    let limited = log(&server, "limited");
    drop(open(&limited, 1).expect("free"));
    conformance::changes_of_a_ticket_are_there_whole_or_not_at_all(&Limited(&server, limited));
    laws::check(&|| Box::new(authority(&server, "authority")));
    laws::check_members(&|| Box::new(authority(&server, "members")));
}

#[test]
fn who_was_deposed_hears_of_it_and_changes_no_document() {
    let server = server!();
    let (first, second) = (authority(&server, "deposed"), authority(&server, "deposed"));
    let epoch = first.lead(1).expect("free");
    first.write(epoch, "a", b"first").expect("it leads");
    // Simulates a process that was suspended for longer than its lease.
    sql(&server, "UPDATE deposed.lease SET until = '-infinity'");
    let later = second.lead(1).expect("free again");
    let end = Instant::now() + LEASE;
    while first.holds(epoch) {
        assert!(Instant::now() < end, "it does not hear of it");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(second.holds(later));
    let refused = first.write(epoch, "a", b"late").expect_err("deposed");
    assert!(matches!(refused, Error::Deposed { .. }), "{refused}");
    assert_eq!(second.read("a").expect("readable").as_deref(), Some(&b"first"[..]));
    second.write(later, "a", b"second").expect("it leads");
    // A coordinator with a stale version of a document does not overwrite it.
    drop(second);
    let again = first.lead(1).expect("free");
    let refused = first.write(again, "a", b"stale").expect_err("it was changed");
    assert!(refused.to_string().contains("another has changed it"), "{refused}");
    assert_eq!(first.read("a").expect("readable").as_deref(), Some(&b"second"[..]));
    first.write(again, "a", b"third").expect("it knows what it replaces");
}

#[test]
fn a_change_is_told_to_those_that_listen() {
    let server = server!();
    let (first, second) = (authority(&server, "a"), authority(&server, "a"));
    let mut told = second.members().and_then(Members::changes).expect("PostgreSQL tells");
    // The first notification comes when the connection starts listening.
    let mut next = || {
        let end = Instant::now() + Duration::from_secs(10);
        while !told.has_changed().expect("it listens") {
            assert!(Instant::now() < end, "nothing was told");
            std::thread::sleep(Duration::from_millis(1));
        }
        told.mark_unchanged();
    };
    next();
    let epoch = first.lead(1).expect("free");
    next();
    first.write(epoch, "tokens", b"new").expect("it leads");
    next();
    first.resign(epoch);
    next();
    // A lost connection listens again.
    sql(
        &server,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'",
    );
    next();
    drop(first);
    next();
}

#[test]
fn older_data_is_noticed() {
    let server = server!();
    let place = log(&server, "older");
    let running = open(&place, 1).expect("free");
    for ticket in 1..=3 {
        running.log.submit(ticket, put(ticket, 10).into()).expect("taken");
        assert_eq!(running.fates(ticket..=ticket), [(ticket, true)].into());
        if ticket == 2 {
            sql(&server, "CREATE TABLE older.backup AS SELECT * FROM older.head");
        }
    }
    let restore =
        "UPDATE older.head SET (number, digest) = (SELECT number, digest FROM older.backup);
        DELETE FROM older.record WHERE seq = 3; DELETE FROM older.commit WHERE number > 3";
    sql(&server, restore);
    running.log.submit(4, put(4, 10).into()).expect("taken");
    let told = running.outcomes.recv_timeout(Duration::from_secs(60)).expect("it is told");
    assert!(format!("{told:?}").contains("was restored"), "{told:?}");
    drop(running);
    let error = open(&place, 1).err().expect("it was restored").to_string();
    assert!(error.contains("expected 4") && error.contains("older.last"), "{error}");
    // Another machine continued with the old data.
    let elsewhere = PostgresLog::new(database(&server, "older"), server.beside("elsewhere"));
    let running = open(&elsewhere, 1).expect("it knows no better");
    running.log.submit(1, put(9, 10).into()).expect("taken");
    drop(running);
    let error = open(&place, 1).err().expect("that is another one").to_string();
    assert!(error.contains("its commit 4 is another"), "{error}");
    std::fs::remove_file(server.beside("older.last")).expect("an administrator's decision");
    assert_eq!(open(&place, 1).expect("as told").found.len(), 3);
}

#[test]
fn lost_connections_and_killed_servers_lose_nothing() {
    let mut server = server!();
    let place = log(&server, "lost");
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
            // A repeated removal or an old value would be detected.
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
    let error = open(&PostgresLog::new(nobody.expect("well formed"), server.beside("nobody")), 1)
        .err()
        .expect("nobody answers");
    assert!(matches!(error, JournalError::Io { .. }), "{error}");
    let newer = log(&server, "newer");
    drop(open(&newer, 1).expect("free"));
    sql(&server, "UPDATE newer.format SET version = 9");
    let error = open(&newer, 1).err().expect("of a later program");
    assert!(matches!(error, JournalError::TooNew { found: 9, supported: 1, .. }), "{error}");
    let error = PostgresAuthority::open(database(&server, "newer"), "one").expect_err("likewise");
    assert!(matches!(error, Error::File { .. }), "{error}");
    drop(authority(&server, "taken"));
    let error = PostgresAuthority::open(database(&server, "taken"), "two").expect_err("another's");
    assert!(error.to_string().contains("the cluster with the fingerprint one"), "{error}");
    let damaged = log(&server, "damaged");
    let running = open(&damaged, 1).expect("free");
    running.log.submit(1, put(1, 10).into()).expect("taken");
    drop(running);
    sql(&server, "UPDATE damaged.record SET bytes = set_byte(bytes, 9, 255 - get_byte(bytes, 9))");
    let error = open(&damaged, 1).err().expect("a byte is another");
    assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
}
