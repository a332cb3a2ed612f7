//! The laws of an authority on Debian's etcd, and what only such an engine can do.

pub(in crate::control) mod server;
pub(in crate::control) mod tls;

use super::client::{Client, delete, put, range};
use super::{EtcdAuthority, Keys, LEASE};
use crate::control::authority::Authority;
use crate::control::authority::conformance as laws;
use crate::error::{Error, Result};
use server::Etcd;
use std::time::{Duration, Instant};

/// Starts the members, or skips the test with the reason.
macro_rules! etcd {
    ($members:expr) => {
        match Etcd::start($members) {
            Ok(etcd) => etcd,
            Err(reason) => return println!("skipped: etcd: {reason}"),
        }
    };
}

fn keys(etcd: &Etcd, name: &str) -> Keys {
    Keys::new(etcd.endpoints().into(), name)
}

fn authority(etcd: &Etcd, name: &str) -> EtcdAuthority {
    EtcdAuthority::open(keys(etcd, name), "one").expect("reachable")
}

/// Polls until `holds` returns true; panics after 30 seconds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_laws_are_obeyed() {
    let etcd = etcd!(1);
    laws::check(&|| Box::new(authority(&etcd, "authority")));
    laws::check_members(&|| Box::new(authority(&etcd, "members")));
    let engine = authority(&etcd, "engine").engine;
    assert!(
        engine.starts_with("etcd 3.") && engine.ends_with(", 1 of 1 members answer"),
        "{engine}"
    );
}

/// Ends the lease of the leader of cluster `name`.
pub(in crate::control) fn depose_in(etcd: &Etcd, name: &str) {
    let keys = keys(etcd, name);
    depose(&Client::new(&keys).expect("well formed"), &keys);
}

/// Ends the leader's lease, as if its process had been suspended for longer.
fn depose(client: &Client, keys: &Keys) {
    let [found] = client.look([range(keys.key("lead"))]).expect("reachable");
    client.revoke(found[0].lease).expect("there");
}

#[test]
fn who_was_deposed_hears_of_it_and_changes_no_document() {
    let etcd = etcd!(1);
    let keys = keys(&etcd, "deposed");
    let client = Client::new(&keys).expect("well formed");
    let (first, second) = (authority(&etcd, "deposed"), authority(&etcd, "deposed"));
    let members = first.members().expect("of several");
    let number = members.enter(1, b"first").expect("reachable");
    let epoch = first.lead(1).expect("free");
    first.write(epoch, "a", b"first").expect("it leads");
    depose(&client, &keys);
    let later = second.lead(1).expect("free again");
    let refused = first.write(epoch, "a", b"late").expect_err("deposed");
    assert!(matches!(refused, Error::Deposed { .. }), "{refused}");
    until("it does not hear of it", || !first.holds(epoch));
    assert!(second.holds(later));
    // The deposed coordinator stays a member.
    until("it is not there", || {
        let present = members.present().expect("readable");
        present.iter().any(|one| one.number == number && one.about == b"first" && !one.leads)
    });
    assert_eq!(second.read("a").expect("readable").as_deref(), Some(&b"first"[..]));
    second.write(later, "a", b"second").expect("it leads");
    // A coordinator with a stale version of a document does not overwrite it.
    drop(second);
    let again = first.lead(1).expect("free");
    let refused = first.write(again, "a", b"stale").expect_err("it was changed");
    assert!(refused.to_string().contains("another has changed it"), "{refused}");
    assert_eq!(first.read("a").expect("readable").as_deref(), Some(&b"second"[..]));
    first.write(again, "a", b"third").expect("it knows what it replaces");
    // An administrator deletes only the key.
    client.transact(vec![], vec![delete(keys.key("lead"))], vec![]).expect("reachable");
    until("it does not hear of it", || !first.holds(again));
}

#[test]
fn who_ended_without_a_word_is_followed_and_forgotten() {
    let etcd = etcd!(1);
    let (first, second) = (authority(&etcd, "ended"), authority(&etcd, "ended"));
    first.members().expect("of several").enter(1, b"").expect("reachable");
    let epoch = first.lead(1).expect("free");
    let _paused = first.heart.pause();
    let begun = Instant::now();
    let later = loop {
        match second.lead(1) {
            Ok(later) => {
                assert!(first.holds(epoch) && !first.holds_now(epoch), "it has only a clock");
                break later;
            }
            Err(Error::Led { .. }) => assert!(begun.elapsed() < Duration::from_secs(20)),
            Err(error) => panic!("{error}"),
        }
    };
    assert!(later > epoch && begun.elapsed() > LEASE / 2);
    assert_eq!(second.members().expect("of several").present().expect("readable"), []);
    assert!(matches!(first.write(epoch, "a", b""), Err(Error::Deposed { .. })));
}

#[test]
fn a_server_that_was_killed_keeps_documents_numbers_and_the_lead() {
    let mut etcd = etcd!(1);
    let first = authority(&etcd, "killed");
    let epoch = first.lead(1).expect("free");
    first.write(epoch, "a", b"one").expect("it leads");
    etcd.0[0].kill();
    let refused = first.write(epoch, "a", b"two").expect_err("nobody answers");
    assert!(matches!(refused, Error::File { .. }), "{refused}");
    assert!(first.holds(epoch), "as far as is known");
    etcd.run(0);
    // Its lease begins anew and is renewed.
    std::thread::sleep(LEASE * 2);
    assert!(first.holds(epoch));
    first.write(epoch, "a", b"two").expect("it leads still");
    drop(first);
    let second = authority(&etcd, "killed");
    assert!(second.lead(1).expect("free") > epoch);
    assert_eq!(second.read("a").expect("readable").as_deref(), Some(&b"two"[..]));
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_written() {
    let etcd = etcd!(1);
    drop(authority(&etcd, "taken"));
    let text = |result: Result<EtcdAuthority>| result.map(drop).expect_err("wrong").to_string();
    let error = text(EtcdAuthority::open(keys(&etcd, "taken"), "two"));
    assert!(error.contains("the cluster with the fingerprint one, not two"), "{error}");
    let newer = keys(&etcd, "newer");
    drop(authority(&etcd, "newer"));
    let client = Client::new(&newer).expect("well formed");
    let puts = [("format", "9"), ("counter", "x")];
    let puts = puts.map(|(name, value)| put(newer.key(name), value.as_bytes(), 0)).to_vec();
    client.transact(vec![], puts, vec![]).expect("reachable");
    let error = text(EtcdAuthority::open(newer.clone(), "one"));
    assert!(error.contains("version \"9\", expected 1"), "{error}");
    client.transact(vec![], vec![put(newer.key("format"), b"1", 0)], vec![]).expect("reachable");
    let error = authority(&etcd, "newer").lead(1).expect_err("no number").to_string();
    assert!(error.contains("counter has no number"), "{error}");
    let nobody = Keys::new(vec!["127.0.0.1:1".to_owned()].into(), "nobody");
    let error = text(EtcdAuthority::open(nobody, "one"));
    assert!(error.contains("127.0.0.1:1") && error.contains("refused"), "{error}");

    let large = authority(&etcd, "large");
    let epoch = large.lead(1).expect("free");
    large.write(epoch, "fits", &vec![1; 1_500_000]).expect("it fits");
    let error =
        large.write(epoch, "large", &vec![1; 1_600_000]).expect_err("too large").to_string();
    assert!(error.contains("1600000 bytes") && error.contains("--max-request-bytes"), "{error}");
    let puts = vec![put(b"beyond".to_vec(), &vec![1; 1_600_000], 0)];
    let error = client.transact(vec![], puts, vec![]).expect_err("likewise").text();
    assert!(error.contains("--max-request-bytes"), "{error}");
}

#[test]
fn of_three_members_one_may_be_killed() {
    let mut etcd = etcd!(3);
    let first = authority(&etcd, "three");
    assert!(first.engine.ends_with(", 3 of 3 members answer"), "{}", first.engine);
    let mut epoch = first.lead(1).expect("free");
    for at in 0..3 {
        let text = format!("before {at}");
        first.write(epoch, "a", text.as_bytes()).expect("it leads");
        // Each member is killed in turn, so the members' leader is too.
        etcd.0[at].kill();
        let end = Instant::now() + Duration::from_secs(30);
        let late = format!("while {at} is away");
        while let Err(error) = first.write(epoch, "a", late.as_bytes()) {
            assert!(Instant::now() < end, "{error}");
            if matches!(error, Error::Deposed { .. }) {
                epoch = first.lead(1).expect("nobody else wants it");
            }
        }
        let second = authority(&etcd, "three");
        assert!(second.engine.ends_with(", 2 of 3 members answer"), "{}", second.engine);
        assert_eq!(second.read("a").expect("readable"), Some(late.into_bytes()));
        etcd.run(at);
    }
}
