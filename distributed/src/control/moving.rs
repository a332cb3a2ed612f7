//! Moves a cluster's log and authority to another place, such as from the files of one machine to a
//! shared engine, or back. It works for any two places that obey the laws of both traits.
//!
//! The migration holds the lead of both places from beginning to end, so no coordinator starts on
//! either. The target is marked incomplete before anything else is written to it, and the source is
//! marked as moved before the target is marked whole. So at no moment could coordinators start on
//! both, or on half of one.

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

/// The progress of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationStep {
    /// This many records of the source were read and verified.
    Read(usize),
    /// Records were copied to the target.
    Copied {
        /// Copied records.
        done: usize,
        /// All records.
        total: usize,
    },
    /// Records were read back from the target.
    Verified {
        /// Verified records.
        done: usize,
        /// All records.
        total: usize,
    },
    /// The source is marked as moved.
    Left,
}

use MigrationStep as Step;

/// Receives each step. An error aborts the migration at that step, as a kill would.
pub(crate) type Watch<'a> = dyn FnMut(Step) -> Result<()> + 'a;
/// Checks a record; returns how many bytes of its task lie in other files.
pub(crate) type Inspect = fn(Key, &[u8]) -> Result<u64, String>;

/// The log and the authority of one place.
pub(crate) struct Side {
    /// Identifies the place for people, without secrets. Equal labels mean the same place.
    pub(crate) label: String,
    pub(crate) authority: Box<dyn Authority>,
    pub(crate) log: Box<dyn Place>,
    pub(crate) inspect: Inspect,
    /// Whether a target also reaches the bytes in other files.
    pub(crate) shares_apart: bool,
    /// The name of a coordinator, for people.
    pub(crate) name: fn(&Present) -> String,
}

/// Moves everything from one place to the other, or continues an interrupted migration.
///
/// # Errors
/// [`Error::Migration`](crate::Error::Migration) if either place is in use, if the target has other
/// contents, or if the copy differs; any error of reading or writing. The source is then unchanged.
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
        // A target that was opened once shows whether it has records.
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

/// The result of a migration that is already complete; `None` if there is something to do.
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

/// Whether the target is empty, or an incomplete copy of the same source; and the epochs of earlier
/// copies.
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

/// Allows coordinators to start on the source again. Returns where the cluster had been moved to.
///
/// # Errors
/// [`Error::Migration`](crate::Error::Migration) if the cluster was not moved, or the place is in
/// use.
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
