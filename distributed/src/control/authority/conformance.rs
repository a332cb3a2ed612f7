//! The laws of an authority, checked for each kind.

use super::{Authority, Folder, InMemory};
use crate::error::{Error, Result};
use std::path::PathBuf;

/// Creates views of one authority, one per coordinator.
pub(crate) type Views<'a> = &'a dyn Fn() -> Box<dyn Authority>;

pub(crate) fn check(views: Views<'_>) {
    documents_are_read_as_they_were_written(views);
    documents_are_listed(views);
    epochs_rise_whatever_the_clock_does(views);
    one_leads_at_a_time(views);
    who_does_not_lead_any_more_writes_nothing(views);
}

/// The laws of an authority that several coordinators share.
pub(crate) fn check_members(views: Views<'_>) {
    those_that_take_part_know_each_other(views);
    numbers_are_given_once(views);
    who_was_deposed_hears_of_it(views);
}

fn present(view: &dyn Authority) -> Vec<(u64, bool, Vec<u8>)> {
    let present = view.members().expect("of several").present().expect("readable");
    present.into_iter().map(|one| (one.number, one.leads, one.about)).collect()
}

fn enter(view: &dyn Authority, now_ms: u64, about: &[u8]) -> u64 {
    view.members().expect("of several").enter(now_ms, about).expect("reachable")
}

fn those_that_take_part_know_each_other(views: Views<'_>) {
    let (first, second, third) = (views(), views(), views());
    assert_eq!(present(&*third), []);
    let one = enter(&*first, 10, b"one");
    let two = enter(&*second, 10, b"two");
    let expected = [(one, false, b"one".to_vec()), (two, false, b"two".to_vec())];
    assert_eq!(present(&*third), expected);
    let epoch = second.lead(10).expect("free");
    let expected = [(two, true, b"two".to_vec()), (one, false, b"one".to_vec())];
    for view in [&first, &second, &third] {
        assert_eq!(present(&**view), expected);
    }
    second.resign(epoch);
    assert!(present(&*first).iter().all(|(_, leads, _)| !leads));
    let again = enter(&*first, 10, b"");
    drop(second);
    assert_eq!(present(&*third), [(again, false, Vec::new())]);
    assert!(third.members().expect("of several").engine().len() > 4);
}

fn numbers_are_given_once(views: Views<'_>) {
    let (first, second) = (views(), views());
    let mut last = enter(&*first, 5_000_000, b"");
    assert!(last >= 5_000_000);
    for _ in 0..3 {
        for view in [&first, &second] {
            let epoch = view.lead(10).expect("free");
            assert!(epoch > last);
            view.resign(epoch);
            last = enter(&**view, 10, b"");
            assert!(last > epoch);
        }
    }
}

fn who_was_deposed_hears_of_it(views: Views<'_>) {
    let (first, second) = (views(), views());
    let epoch = first.lead(10).expect("free");
    assert!(first.holds(epoch) && !first.holds(epoch + 1) && !second.holds(epoch));
    let again = first.lead(10).expect("its own");
    assert!(first.holds(again) && !first.holds(epoch));
    first.resign(again);
    assert!(!first.holds(again));
    let later = second.lead(10).expect("free");
    assert!(second.holds(later) && !first.holds(later));
}

fn documents_are_read_as_they_were_written(views: Views<'_>) {
    let first = views();
    assert_eq!(first.read("a").expect("readable"), None);
    let epoch = first.lead(5).expect("free");
    first.write(epoch, "a", b"one").expect("it leads");
    first.write(epoch, "b", b"").expect("it leads");
    first.write(epoch, "a", b"two").expect("it leads");
    let other = views();
    for view in [&first, &other] {
        assert_eq!(view.read("a").expect("readable").as_deref(), Some(&b"two"[..]));
        assert_eq!(view.read("b").expect("readable").as_deref(), Some(&b""[..]));
        assert_eq!(view.read("c").expect("readable"), None);
    }
    drop(first);
    assert_eq!(other.read("a").expect("readable").as_deref(), Some(&b"two"[..]));
}

fn documents_are_listed(views: Views<'_>) {
    let (first, other) = (views(), views());
    let listed = || {
        let mut names = other.documents().expect("readable");
        names.retain(|name| name.ends_with(".json"));
        names
    };
    assert!(listed().is_empty());
    let epoch = first.lead(5).expect("free");
    for name in ["two.json", "one.json", "two.json"] {
        first.write(epoch, name, b"{}").expect("it leads");
    }
    assert_eq!(listed(), ["one.json", "two.json"]);
}

fn epochs_rise_whatever_the_clock_does(views: Views<'_>) {
    let view = views();
    let first = view.lead(1_000).expect("free");
    assert!(first >= 1_000);
    let again = view.lead(10).expect("its own");
    assert!(again > first, "the clock was set back");
    drop(view);
    let view = views();
    let next = view.lead(10).expect("free");
    assert!(next > again);
    assert!(view.lead(next + 1_000).expect("its own") >= next + 1_000);
}

fn one_leads_at_a_time(views: Views<'_>) {
    let (first, second) = (views(), views());
    let epoch = first.lead(10).expect("free");
    assert!(matches!(second.lead(20), Err(Error::Led { .. })));
    // A view without the lead, and an epoch that belongs to another lead, change nothing.
    second.resign(epoch);
    first.resign(epoch + 1);
    assert!(matches!(second.lead(20), Err(Error::Led { .. })));
    first.resign(epoch);
    let later = second.lead(20).expect("free again");
    assert!(later > epoch);
    assert!(matches!(first.lead(30), Err(Error::Led { .. })));
    drop(second);
    assert!(first.lead(30).expect("who led is gone") > later);
}

fn who_does_not_lead_any_more_writes_nothing(views: Views<'_>) {
    let (first, second) = (views(), views());
    let refused = |result: Result<()>| assert!(matches!(result, Err(Error::Deposed { .. })));
    refused(first.write(1, "d", b"nobody"));
    let epoch = first.lead(10).expect("free");
    refused(first.write(epoch + 1, "d", b"too soon"));
    refused(second.write(epoch, "d", b"another's epoch"));
    first.write(epoch, "d", b"first").expect("it leads");
    let again = first.lead(10).expect("its own");
    refused(first.write(epoch, "d", b"late"));
    first.resign(again);
    refused(first.write(again, "d", b"resigned"));
    let later = second.lead(10).expect("free");
    refused(first.write(again, "d", b"later still"));
    assert_eq!(second.read("d").expect("readable").as_deref(), Some(&b"first"[..]));
    second.write(later, "d", b"second").expect("it leads");
    assert_eq!(first.read("d").expect("readable").as_deref(), Some(&b"second"[..]));
}

#[test]
fn an_authority_in_a_folder_obeys() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    check(&|| Box::new(Folder::new(folder.path())));
}

#[test]
fn an_authority_in_memory_obeys() {
    let memory = InMemory::default();
    check(&|| Box::new(memory.view()));
    check_members(&|| Box::new(memory.view()));
}

/// An authority that breaks one law.
#[derive(Debug)]
struct Careless(InMemory, Fault);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    /// The epoch depends only on the clock.
    Clock,
    /// Every request takes the lead.
    Depose,
    /// Every write is accepted.
    Unfenced,
    /// Resigning has no effect.
    Cling,
    /// The last byte of a document is lost.
    Cut,
    /// One document is missing from the list.
    Omit,
}

impl Authority for Careless {
    fn lead(&self, now_ms: u64) -> Result<u64> {
        match self.0.lead(now_ms) {
            Ok(_) if self.1 == Fault::Clock => Ok(now_ms),
            Err(Error::Led { .. }) if self.1 == Fault::Depose => Ok(now_ms),
            led => led,
        }
    }

    fn resign(&self, epoch: u64) {
        if self.1 != Fault::Cling {
            self.0.resign(epoch);
        }
    }

    fn holds(&self, epoch: u64) -> bool {
        self.0.holds(epoch)
    }

    fn read(&self, document: &str) -> Result<Option<Vec<u8>>> {
        let mut bytes = self.0.read(document)?;
        if self.1 == Fault::Cut {
            bytes.as_mut().map(Vec::pop);
        }
        Ok(bytes)
    }

    fn write(&self, epoch: u64, document: &str, bytes: &[u8]) -> Result<()> {
        let written = self.0.write(epoch, document, bytes);
        if self.1 == Fault::Unfenced { Ok(()) } else { written }
    }

    fn documents(&self) -> Result<Vec<String>> {
        let mut names = self.0.documents()?;
        if self.1 == Fault::Omit {
            names.pop();
        }
        Ok(names)
    }

    fn locate(&self, document: &str) -> PathBuf {
        self.0.locate(document)
    }
}

#[test]
fn the_laws_notice_what_breaks_them() {
    let obeys = |fault| {
        let memory = InMemory::default();
        let checked = || check(&|| Box::new(Careless(memory.view(), fault)));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(checked)).is_ok()
    };
    assert!(obeys(Fault::Nothing));
    let faults =
        [Fault::Clock, Fault::Depose, Fault::Unfenced, Fault::Cling, Fault::Cut, Fault::Omit];
    for fault in faults {
        assert!(!obeys(fault), "{fault:?}");
    }
}
