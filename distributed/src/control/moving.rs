//! Takes log and authority of a cluster from one place to another, such as from the files of one machine
//! to an engine that several share, or back. Any two places will do that obey the laws of both traits.
//!
//! Both are led from the beginning to the end, so no coordinator begins on either. The target says of
//! itself that it is incomplete before anything else is written to it, and the source that it was moved
//! before the target is whole: at no moment would a coordinator begin on both, or on half of one.

mod held;
pub(crate) mod marker;
mod records;
#[cfg(test)]
pub(crate) mod tests;

use super::authority::{Authority, Present};
use super::log::Place;
use super::record::Key;
use crate::error::Result;
use held::Held;
use marker::{Marker, Migrated};
use records::{Original, refused};
use std::collections::BTreeSet;

/// How far a migration has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationStep {
    /// So many records of the source were read and checked.
    Read(usize),
    /// So many are in the target.
    Copied {
        /// Those that are.
        done: usize,
        /// All.
        total: usize,
    },
    /// So many were read back from it.
    Verified {
        /// Those that were.
        done: usize,
        /// All.
        total: usize,
    },
    /// The source says that the cluster is elsewhere.
    Left,
}

use MigrationStep as Step;

/// Hears of each step. An error ends the migration there, as a kill would.
pub(crate) type Watch<'a> = dyn FnMut(Step) -> Result<()> + 'a;
/// Checks a record; answers how many bytes of its task lie elsewhere.
pub(crate) type Inspect = fn(Key, &[u8]) -> Result<u64, String>;

/// Log and authority in one place.
pub(crate) struct Side {
    /// What people know it by, without secrets. The same place has the same one.
    pub(crate) label: String,
    pub(crate) authority: Box<dyn Authority>,
    pub(crate) log: Box<dyn Place>,
    pub(crate) inspect: Inspect,
    /// Whether what lies elsewhere is reached from a target as well.
    pub(crate) shares_apart: bool,
    /// What people know a coordinator by.
    pub(crate) name: fn(&Present) -> String,
}

/// Takes everything from one to the other. Where that was begun before, it goes on.
///
/// # Errors
/// [`Error::Migration`](crate::Error::Migration) where either is in use, where the target has something
/// else, or where the two do not become the same; what kept them from being read and written. The source
/// is then as it was.
pub(crate) fn run(from: &Side, to: &Side, watch: &mut Watch<'_>) -> Result<Migrated> {
    if from.label == to.label {
        return Err(refused(format!("it is in {} already", to.label)));
    }
    if let Some(done) = was_done(from, to)? {
        return Ok(done);
    }
    let source = Held::take(from, 0)?;
    let original = Original::read(&source, watch)?;
    if original.contents.documents.is_empty() && original.contents.records.is_empty() {
        return Err(refused(format!("{} has nothing of a cluster", from.label)));
    }
    let last = original.epochs.last().copied().unwrap_or(0);
    let mut target = Held::take(to, last.saturating_add(1))?;
    let (is_new, mut passing) = standing(from, &target)?;
    passing.extend(original.own);
    let mut epochs: BTreeSet<u64> = original.epochs.difference(&passing).copied().collect();
    if epochs.is_empty() {
        // Opened once, a target shows whether it has records.
        epochs.insert(last);
    }
    records::note_epochs(&target, &epochs, is_new)?;
    let passing = passing.into_iter().collect();
    let incomplete = Marker::Incomplete { from: from.label.clone(), passing };
    incomplete.write(&*to.authority, target.epoch)?;
    records::copy((from, &original), (&target, &epochs), watch)?;
    for (name, bytes) in &original.contents.documents {
        if to.authority.read(name)?.as_ref() != Some(bytes) {
            to.authority.write(target.epoch, name, bytes)?;
        }
    }
    target.again()?;
    let digest = records::verify(&original.contents, &target, watch)?;
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let migrated = Migrated {
        from: from.label.clone(),
        to: to.label.clone(),
        records: count(original.contents.records.len()),
        bytes: original.contents.bytes,
        documents: count(original.contents.documents.len()),
        digest,
    };
    Marker::Moved { to: to.label.clone() }.write(&*from.authority, source.epoch)?;
    watch(Step::Left)?;
    Marker::Whole(migrated.clone()).write(&*to.authority, target.epoch)?;
    Ok(migrated)
}

/// What was taken along when all of this was done before; none where it is to be done.
fn was_done(from: &Side, to: &Side) -> Result<Option<Migrated>> {
    let there = match Marker::read(&*from.authority)? {
        None | Some(Marker::Whole(_) | Marker::Undone { .. }) => return Ok(None),
        Some(Marker::Incomplete { from: first, .. }) => {
            return Err(refused(format!("{} is itself an incomplete copy of {first}", from.label)));
        }
        Some(Marker::Moved { to }) => to,
    };
    match Marker::read(&*to.authority)? {
        Some(Marker::Whole(done)) if there == to.label && done.from == from.label => Ok(Some(done)),
        Some(Marker::Incomplete { from: first, .. })
            if there == to.label && first == from.label =>
        {
            Ok(None)
        }
        _ => Err(refused(format!(
            "{} was moved to {there}: go on from there, or undo that first",
            from.label
        ))),
    }
}

/// Whether a target is empty, or the incomplete copy of the same source, with the epochs of those who
/// copied before.
fn standing(from: &Side, target: &Held<'_>) -> Result<(bool, BTreeSet<u64>)> {
    let to = target.side;
    match Marker::read(&*to.authority)? {
        Some(Marker::Incomplete { from: first, passing }) if first == from.label => {
            return Ok((false, passing.into_iter().collect()));
        }
        Some(Marker::Incomplete { from: first, .. }) => {
            return Err(refused(format!(
                "{} is an incomplete copy of {first}: go on with that one, or choose another name or \
                 folder",
                to.label
            )));
        }
        _ => {}
    }
    let names = to.authority.documents()?;
    match names.is_empty() {
        true => Ok((true, BTreeSet::new())),
        false => Err(refused(format!(
            "{} is not empty: it has {}; choose another name or folder, or move these away, and the \
             journal with them",
            to.label,
            names.join(", ")
        ))),
    }
}

/// Lets coordinators begin again on a place that was left. Answers where the cluster was moved to.
///
/// # Errors
/// [`Error::Migration`](crate::Error::Migration) where it was not moved, or is in use.
pub(crate) fn undo(side: &Side) -> Result<String> {
    let held = Held::take(side, 0)?;
    match Marker::read(&*side.authority)? {
        Some(Marker::Moved { to }) => {
            Marker::Undone { to: to.clone() }.write(&*side.authority, held.epoch)?;
            Ok(to)
        }
        _ => Err(refused(format!("{} was not moved elsewhere", side.label))),
    }
}
