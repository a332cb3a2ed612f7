//! The laws of a log on Debian's NATS servers, and what only such an engine can do.

mod along;
mod machines;
mod moving;
mod server;
mod short;
mod tls;

use super::client::Client;
use super::{JetStreamLog, Stream};
use crate::control::conformance::{self, Bounded, open, put};
use crate::control::log::{Change, Each, Opened, Opener, Place};
use crate::control::servers::Server;
use crate::error::JournalError;
use serde_json::json;
use server::Nats;
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Starts the servers, or skips the test with the reason.
macro_rules! nats {
    ($servers:expr) => {
        match $crate::control::jetstream::tests::server::Nats::start($servers) {
            Ok(nats) => nats,
            Err(reason) => return println!("skipped: nats-server: {reason}"),
        }
    };
}
use nats;

fn stream(nats: &Nats, name: &str) -> Stream {
    Stream::new(nats.addresses().into(), name)
}

/// A log, whose last known commit is stored in the first server's folder.
fn log(nats: &Nats, name: &str) -> JetStreamLog {
    JetStreamLog::new(stream(nats, name), nats.0[0].beside(&format!("{name}.last")))
}

fn client(nats: &Nats, name: &str) -> Client {
    Client::connect(&stream(nats, name)).expect("reachable")
}

/// A log whose room the stream's configuration limits.
struct Limited(Client, JetStreamLog);

impl Place for Limited {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        self.1.open(opener, each)
    }
}

impl Bounded for Limited {
    fn limit(&self, more_bytes: Option<usize>) {
        let used = self.0.info().expect("there").state.bytes;
        let most = more_bytes.map_or(-1, |more| i64::try_from(used).expect("small") + more as i64);
        self.0.configure(&json!({ "max_bytes": most }));
    }
}

#[test]
fn the_laws_are_obeyed() {
    let nats = nats!(1);
    conformance::check_shared(&|at| Box::new(log(&nats, &format!("log_{at}"))));
    let limited = log(&nats, "limited");
    drop(open(&limited, 1).expect("free"));
    let limited = Limited(client(&nats, "limited"), limited);
    conformance::changes_of_a_ticket_are_there_whole_or_not_at_all(&limited);
    let info = limited.0.info().expect("there");
    let engine = limited.0.engine(&info.config);
    assert!(engine.starts_with("NATS 2.") && engine.ends_with(", 1 copy"), "{engine}");
}

/// Makes commits while `happens` disturbs the servers; returns the expected contents.
fn commits_while(
    place: &dyn Place,
    tickets: u64,
    happens: impl FnOnce(&AtomicBool) + Send,
) -> BTreeMap<u64, Vec<u8>> {
    let running = open(place, 1).expect("free");
    let is_done = AtomicBool::new(false);
    let mut expected = BTreeMap::new();
    std::thread::scope(|scope| {
        scope.spawn(|| happens(&is_done));
        for ticket in 1..=tickets {
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
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(running.fates(1..=tickets).values().all(|durable| *durable));
        is_done.store(true, Ordering::Relaxed);
    });
    expected
}

fn found(place: &dyn Place) -> BTreeMap<u64, Vec<u8>> {
    let found = open(place, 1).expect("free").found;
    found.into_iter().map(|(key, value)| (key.1, value)).collect()
}

#[test]
fn killed_servers_lose_nothing() {
    let mut nats = nats!(1);
    let place = log(&nats, "lost");
    let expected = commits_while(&place, 300, |is_done| {
        let mut times = 0;
        while !is_done.load(Ordering::Relaxed) && times < 5 {
            std::thread::sleep(Duration::from_millis(500));
            nats.0[0].kill();
            std::thread::sleep(Duration::from_millis(100));
            nats.run(0);
            times += 1;
        }
        assert!(times > 1, "it was killed in time");
    });
    assert_eq!(expected.len(), 100);
    assert_eq!(found(&place), expected);
}

#[test]
fn of_three_servers_one_may_be_killed() {
    let mut nats = nats!(3);
    let place = log(&nats, "three");
    drop(open(&place, 1).expect("free"));
    let client = client(&nats, "three");
    let info = client.info().expect("there");
    assert!(client.engine(&info.config).ends_with(", 3 copies"));
    let leader = client.leader();
    let at = usize::from(leader.as_bytes()[1] - b'0');
    let mut expected = commits_while(&place, 100, |_| {
        std::thread::sleep(Duration::from_millis(300));
        nats.0[at].kill();
    });
    assert_eq!(found(&place), expected, "with two of three");
    assert_ne!(client.leader(), leader);
    nats.run(at);
    let more = commits_while(&place, 50, |_| {});
    expected.extend(more);
    assert_eq!(found(&place), expected);
}

#[test]
fn older_data_is_noticed() {
    let mut nats = nats!(1);
    let place = log(&nats, "older");
    let running = open(&place, 1).expect("free");
    let write = |ticket| {
        running.log.submit(ticket, put(ticket, 10).into()).expect("taken");
        assert_eq!(running.fates(ticket..=ticket), [(ticket, true)].into());
    };
    write(1);
    nats.0[0].kill();
    nats.0[0].copy("data", "backup");
    nats.run(0);
    write(2);
    write(3);
    nats.0[0].kill();
    nats.0[0].copy("backup", "data");
    nats.run(0);
    running.log.submit(4, put(4, 10).into()).expect("taken");
    let told = running.outcomes.recv_timeout(Duration::from_secs(60)).expect("it is told");
    assert!(format!("{told:?}").contains("was restored"), "{told:?}");
    drop(running);
    let error = open(&place, 1).err().expect("it was restored").to_string();
    assert!(error.contains("expected 5") && error.contains("older.last"), "{error}");
    // Another machine continued with the old data.
    let elsewhere = JetStreamLog::new(stream(&nats, "older"), nats.0[0].beside("elsewhere"));
    let running = open(&elsewhere, 1).expect("it knows no better");
    running.log.submit(1, put(9, 10).into()).expect("taken");
    drop(running);
    let error = open(&place, 1).err().expect("that is another one").to_string();
    assert!(error.contains("its commit 5 is another"), "{error}");
    std::fs::remove_file(nats.0[0].beside("older.last")).expect("an administrator's decision");
    assert_eq!(open(&place, 1).expect("as told").found.len(), 2);
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_written() {
    let nats = nats!(1);
    let nobody = Stream::new(vec!["127.0.0.1:1".to_owned()].into(), "nobody");
    let nobody = JetStreamLog::new(nobody, nats.0[0].beside("nobody"));
    let error = open(&nobody, 1).err().expect("nobody answers");
    assert!(matches!(error, JournalError::Io { .. }), "{error}");
    let mut plain = Server::new("nats-server").expect("it is there");
    let host = plain.host.to_string();
    plain.set_args(["-a", &host, "-p", "24222"]);
    plain.begin();
    plain.wait(|| TcpStream::connect((host.as_str(), 24_222)).is_ok());
    let without = Stream::new(vec![format!("{host}:24222")].into(), "without");
    let without = JetStreamLog::new(without, nats.0[0].beside("without"));
    let error = open(&without, 1).err().expect("it cannot keep a log").to_string();
    assert!(error.contains("without JetStream: start it with -js"), "{error}");
    for (at, (change, part)) in [
        (
            json!({ "max_age": 3_600_000_000_000_i64 }),
            "its max_age is 3600000000000, expected none",
        ),
        (json!({ "discard": "old" }), "its discard is old, expected new"),
        (json!({ "max_msgs": 7 }), "its max_msgs is 7, expected none"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("forgets_{at}");
        let place = log(&nats, &name);
        drop(open(&place, 1).expect("free"));
        client(&nats, &name).configure(&change);
        let error = open(&place, 1).err().expect("it could forget").to_string();
        assert!(error.contains(part), "{error}");
    }
    for (name, payload) in [("newer", &[9_u8, 0][..]), ("alien", &[1; 90])] {
        let place = log(&nats, name);
        drop(open(&place, 1).expect("free"));
        let client = client(&nats, name);
        let last = client.info().expect("there").state.last_seq;
        client.publish(last, payload.to_vec()).expect("taken");
        let error = open(&place, 1).err().expect("it is not ours");
        match name {
            "newer" => assert!(
                matches!(error, JournalError::TooNew { found: 9, supported: 1, .. }),
                "{error}"
            ),
            _ => assert!(matches!(error, JournalError::Damaged { .. }), "{error}"),
        }
        assert_eq!(client.info().expect("there").state.last_seq, last + 1);
    }
}
