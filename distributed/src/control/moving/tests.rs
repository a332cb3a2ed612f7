//! The laws of a migration between any two places, wherever it is killed.

use super::held::Held;
use super::marker::{MARKER, refuse};
use super::{Side, Step, records, run, undo};
use crate::control::authority::{Authority, Folder, InMemory, Present};
use crate::control::conformance::put;
use crate::control::embedded::Embedded;
use crate::control::log::{Change, Each, Opened, Opener, Outcome, Place};
use crate::control::memory::Memory;
use crate::control::record::Key;
use crate::error::{Error, JournalError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::channel;

/// Creates views of one place, one per process.
pub(crate) type View<'a> = &'a dyn Fn() -> Side;

pub(crate) fn side(
    label: impl Into<String>,
    authority: impl Authority + 'static,
    log: impl Place + 'static,
) -> Side {
    Side {
        label: label.into(),
        authority: Box::new(authority),
        log: Box::new(log),
        inspect: |_, _| Ok(0),
        shares_apart: false,
        name: |present: &Present| format!("coordinator {}", present.number),
    }
}

/// Creates a data folder.
pub(crate) fn folder(path: &Path) -> Side {
    std::fs::create_dir_all(path).expect("ours");
    side(path.display().to_string(), Folder::new(path), Embedded(path.join("journal")))
}

/// Memory that a test's coordinators share.
#[derive(Default)]
struct Shared(InMemory, Option<Memory>);

impl Shared {
    fn new() -> Self {
        Self(InMemory::default(), Some(Memory::shared()))
    }

    fn view(&self, label: &str) -> Side {
        side(label, self.0.view(), self.1.clone().expect("given"))
    }
}

/// Makes changes as a coordinator that starts at `now_ms`; returns its epoch.
pub(crate) fn change(side: &Side, now_ms: u64, changes: Vec<Change>) -> u64 {
    let lead = side.authority.lead(now_ms).expect("free");
    let opened = side.log.open(lead.into(), &mut |_, _| Ok(())).expect("free");
    let (told, outcomes) = channel();
    let log = (opened.start)(Box::new(move |outcome| drop(told.send(outcome)))).expect("free");
    log.submit(1, changes.into()).expect("taken");
    assert!(matches!(outcomes.recv().expect("it is told"), Outcome::Durable(1)));
    side.authority.resign(lead);
    opened.epoch
}

/// Fills a place as three earlier coordinators did, each with a third of `count` records; returns
/// their epochs.
pub(crate) fn fill(side: &Side, count: u64) -> BTreeSet<u64> {
    let mut epochs = BTreeSet::new();
    for at in 0..3 {
        let third = count / 3;
        let changes = (1..=third).map(|seq| put(at * third + seq, 30)).collect();
        epochs.insert(change(side, 1_000 * (at + 1), changes));
    }
    let lead = side.authority.lead(5_000).expect("free");
    for (name, text) in [("revoked.json", "{}"), ("tokens.json", "[1]"), ("keys.json", "[2, 3]")] {
        side.authority.write(lead, name, text.as_bytes()).expect("it leads");
    }
    side.authority.resign(lead);
    epochs
}

type Found = (BTreeMap<Key, Vec<u8>>, BTreeMap<String, Vec<u8>>);

/// The contents of a place, and the epochs that it knows.
pub(crate) fn contents(side: &Side) -> (Found, BTreeSet<u64>) {
    let held = Held::take(side, 0).expect("free");
    let mut found = BTreeMap::new();
    let opened = side.log.open(held.epoch.into(), &mut |key, value| {
        found.insert(key, value.to_vec());
        Ok(())
    });
    let epochs = opened.expect("free").epochs.into_iter().collect();
    ((found, records::documents(side).expect("readable")), epochs)
}

fn nobody_watches(_: Step) -> crate::Result<()> {
    Ok(())
}

/// Checks the laws. `from` and `to` return an empty place for each name.
pub(crate) fn check(from: &dyn Fn(&str) -> Side, to: &dyn Fn(&str) -> Side) {
    everything_is_there(&|| from("a"), &|| to("a"));
    it_goes_on_wherever_it_was_killed(&|| from("b"), &|| to("b"));
    what_changed_since_is_taken_along(&|| from("c"), &|| to("c"));
    what_is_in_the_way_is_said((&|| from("d"), &|| from("e")), &|| to("d"));
}

fn everything_is_there(from: View<'_>, to: View<'_>) {
    let epochs = fill(&from(), 600);
    let (before, _) = contents(&from());
    let mut steps = Vec::new();
    let migrated = run(&from(), &to(), &mut |step| {
        steps.push(step);
        Ok(())
    });
    let migrated = migrated.expect("nothing is in the way");
    assert_eq!((migrated.records, migrated.documents, migrated.bytes), (600, 3, 18_000));
    assert_eq!(steps.len(), 1_801, "each record three times, and the end");
    let (after, known) = contents(&to());
    assert_eq!(after, before);
    assert!(epochs.is_subset(&known), "{epochs:?} {known:?}");
    assert_eq!(contents(&from()).0, before, "it was left as it was");
    let error = refuse(&*from().authority).expect_err("it was left");
    assert!(matches!(&error, Error::Moved { to, .. } if *to == migrated.to), "{error}");
    refuse(&*to().authority).expect("whole");
    let again = run(&from(), &to(), &mut nobody_watches).expect("it is done already");
    assert_eq!(again, migrated);
    assert_eq!(undo(&from()).expect("it was moved"), migrated.to);
    refuse(&*from().authority).expect("undone");
    assert!(undo(&from()).is_err(), "it is not moved any more");
    let error = run(&from(), &to(), &mut nobody_watches).expect_err("not empty").to_string();
    assert!(error.contains("is not empty: it has keys.json"), "{error}");
}

/// Kills a migration after `left` steps.
fn killed_after(left: usize) -> impl FnMut(Step) -> crate::Result<()> {
    let mut left = left;
    move |_| {
        left = left.checked_sub(1).ok_or_else(|| records::refused("killed".to_owned()))?;
        Ok(())
    }
}

fn it_goes_on_wherever_it_was_killed(from: View<'_>, to: View<'_>) {
    fill(&from(), 300);
    let (before, _) = contents(&from());
    let mut kills = 0;
    for after in (0..).step_by(97) {
        match run(&from(), &to(), &mut killed_after(after)) {
            Ok(migrated) => {
                assert_eq!((migrated.records, migrated.documents), (300, 3));
                break;
            }
            Err(error) => assert!(error.to_string().ends_with("killed"), "{error}"),
        }
        kills += 1;
        let closed = refuse(&*to().authority);
        match after {
            0..300 => closed.expect("it has nothing yet"),
            _ => assert!(matches!(closed, Err(Error::Incomplete { .. })), "{after}: {closed:?}"),
        }
        refuse(&*from().authority).expect("it is whole here");
    }
    assert_eq!(kills, 10);
    assert_eq!(contents(&to()).0, before);
    // Between the two final markers no coordinator starts on either side.
    undo(&from()).expect("it was moved");
    let other = Shared::new();
    let other = || other.view("another");
    run(&from(), &other(), &mut killed_after(900)).expect_err("killed");
    assert!(matches!(refuse(&*from().authority), Err(Error::Moved { .. })));
    assert!(matches!(refuse(&*other().authority), Err(Error::Incomplete { .. })));
    run(&from(), &other(), &mut nobody_watches).expect("it goes on");
    assert_eq!(contents(&other()).0, before);
}

fn what_changed_since_is_taken_along(from: View<'_>, to: View<'_>) {
    fill(&from(), 300);
    run(&from(), &to(), &mut killed_after(800)).expect_err("killed");
    let changes = vec![put(1, 99), Change::Remove { epoch: 7, seq: 2 }, put(1_000, 5)];
    // Another coordinator has started on the source.
    let epoch = change(&from(), crate::clock::unix_ms() + 60_000, changes);
    run(&from(), &to(), &mut nobody_watches).expect("it goes on");
    let (found, known) = contents(&to());
    assert_eq!(found, contents(&from()).0);
    assert!(known.contains(&epoch) && found.0.len() == 300);
    assert_eq!(found.0[&(7, 1)].len(), 99);
}

fn what_is_in_the_way_is_said((from, other): (View<'_>, View<'_>), to: View<'_>) {
    let refused = |from: &Side, to: &Side, part: &str| {
        let error = run(from, to, &mut nobody_watches).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(&from(), &to(), "has nothing of a cluster");
    fill(&from(), 30);
    refused(&from(), &from(), "already");
    for busy in [from(), to()] {
        let lead = busy.authority.lead(10).expect("free");
        refused(&from(), &to(), &format!("a coordinator runs on {}: stop it first", busy.label));
        busy.authority.resign(lead);
        if let Some(members) = busy.authority.members() {
            let number = members.enter(10, b"").expect("reachable");
            let who = format!("coordinator {number} runs on {}: stop it first", busy.label);
            refused(&from(), &to(), &who);
        }
    }
    let damaged = Side { inspect: |_, _| Err("it is no task".to_owned()), ..from() };
    refused(&damaged, &to(), "it is no task");
    let apart = Side { inspect: |_, _| Ok(1_000), ..from() };
    refused(&apart, &to(), "30 durable tasks have 30000 bytes of tensors in files");
    let shared = Side { inspect: |_, _| Ok(1_000), shares_apart: true, ..from() };
    let error = run(&shared, &to(), &mut killed_after(20)).expect_err("killed").to_string();
    assert!(error.ends_with("killed"), "{error}");
    // Of two migrations to one place, the first one owns it.
    run(&from(), &to(), &mut killed_after(50)).expect_err("killed");
    fill(&other(), 3);
    refused(&other(), &to(), &format!("is an incomplete copy of {}", from().label));
    // The verification rejects a record that differs from the written one.
    let bent = Side { log: Box::new(Bent(to().log)), ..to() };
    refused(&from(), &bent, "record 7-9 is another");
    refuse(&*from().authority).expect("it is not left for something else");
    assert!(matches!(refuse(&*to().authority), Err(Error::Incomplete { .. })));
    let view = to();
    let lead = view.authority.lead(10).expect("free");
    view.authority.write(lead, "odd.json", b"{}").expect("it leads");
    drop(view);
    refused(&from(), &to(), "document odd.json is another or does not belong there");
}

/// Reads one record differently from what was written.
struct Bent(Box<dyn Place>);

impl Place for Bent {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        self.0.open(opener, &mut |key, value| {
            let mut value = value.to_vec();
            if key == (7, 9) {
                value[0] ^= 1;
            }
            each(key, &value)
        })
    }
}

#[test]
fn from_memory_to_a_folder_and_back() {
    let folders = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder(&folders.path().join(name));
    let memories: BTreeMap<&str, Shared> =
        ["a", "b", "c", "d", "e"].into_iter().map(|name| (name, Shared::new())).collect();
    check(&|name| memories[name].view(name), &at);
    let folders = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder(&folders.path().join(name));
    let memories: BTreeMap<&str, Shared> =
        ["a", "b", "c", "d", "e"].into_iter().map(|name| (name, Shared::new())).collect();
    check(&at, &|name| memories[name].view(name));
}

#[test]
fn a_journal_without_documents_is_not_taken_for_an_empty_place() {
    let (source, folders) = (Shared::new(), tempfile::tempdir().expect("a folder"));
    fill(&source.view("source"), 30);
    let target = || folder(folders.path());
    change(&target(), 10, vec![put(1, 10)]);
    let before = contents(&target()).0;
    for _ in 0..2 {
        let error = run(&source.view("source"), &target(), &mut nobody_watches);
        let error = error.expect_err("it has a task").to_string();
        assert!(error.contains("is not empty: it has record 7-1"), "{error}");
        refuse(&*target().authority).expect("not begun");
    }
    assert_eq!(contents(&target()).0, before);
    assert!(!folders.path().join(MARKER).exists());
}
