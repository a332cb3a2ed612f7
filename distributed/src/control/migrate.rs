//! Formats of a journal, and the upgrades between them.

use super::record;
use super::tables::{self, RECORDS, Totals};
use super::trouble::Trouble;
use redb::{ReadableTable, WriteTransaction};
use std::collections::BTreeSet;

/// A format, and the steps that lead to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    /// The version that this program writes. Newer ones are refused.
    pub(crate) version: u32,
    /// One step per version, from the oldest that can still be read.
    pub(crate) steps: &'static [Step],
}

/// Upgrades version `from` to version `from + 1`, in a transaction that may still be aborted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// The version before the step.
    pub(crate) from: u32,
    /// Rewrites the tables; totals are recounted afterwards.
    pub(crate) run: fn(&WriteTransaction) -> Result<(), Trouble>,
}

impl Format {
    /// The present format. Version 2 keeps inputs of tasks apart, and version 3 outputs too; older
    /// records stay valid. Version 3 also has a record of each epoch.
    pub(crate) const CURRENT: Self = Self {
        version: 3,
        steps: &[Step { from: 1, run: |_| Ok(()) }, Step { from: 2, run: mark_epochs }],
    };
}

/// Adds a record for each epoch that has tasks.
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

/// Upgrades the contents of the transaction to `format`.
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
