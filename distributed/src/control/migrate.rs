//! Formats of a journal, and how one becomes the next.

use super::record;
use super::tables::{self, RECORDS, Totals};
use super::trouble::Trouble;
use redb::{ReadableTable, WriteTransaction};
use std::collections::BTreeSet;

/// A format, and the steps that lead to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    /// What this program writes. Newer ones are refused.
    pub(crate) version: u32,
    /// One step a version, from the oldest that is still read.
    pub(crate) steps: &'static [Step],
}

/// Makes version `from + 1` of version `from`, inside a transaction that may yet be undone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// What it starts with.
    pub(crate) from: u32,
    /// Rewrites the tables; totals are counted anew afterwards.
    pub(crate) run: fn(&WriteTransaction) -> Result<(), Trouble>,
}

impl Format {
    /// What is written today. Version 2 has tasks whose inputs are kept apart, and version 3 ones
    /// whose outputs are: records of older versions are read as they are. Version 3 has a record of
    /// each epoch too.
    pub(crate) const CURRENT: Self = Self {
        version: 3,
        steps: &[Step { from: 1, run: |_| Ok(()) }, Step { from: 2, run: mark_epochs }],
    };
}

/// Notes the epochs that tasks are known of.
fn mark_epochs(txn: &WriteTransaction) -> Result<(), Trouble> {
    let mut table = txn.open_table(RECORDS)?;
    let mut epochs = BTreeSet::new();
    for row in table.iter()? {
        epochs.insert(row?.0.value().0);
    }
    let mut stored = Vec::new();
    for epoch in epochs {
        let key = (epoch, tables::MARKER);
        record::encode(key, &[], &mut stored);
        table.insert(key, stored.as_slice())?;
    }
    Ok(())
}

/// Brings what is in the transaction to `format`.
pub(super) fn upgrade(
    txn: &WriteTransaction,
    format: &Format,
    totals: Totals,
) -> Result<Totals, Trouble> {
    if totals.version == format.version {
        return Ok(totals);
    }
    for from in totals.version..format.version {
        let step = format.steps.iter().find(|step| step.from == from);
        let what = || format!("no step leads from format {from} to format {}", from + 1);
        let step = step.ok_or_else(|| Trouble::Upgrade { from: totals.version, what: what() })?;
        (step.run)(txn)?;
    }
    tables::recount(txn, Totals { version: format.version, ..totals })
}
