//! Formats of a journal, and how one becomes the next.

use super::tables::{self, Totals};
use super::trouble::Trouble;
use redb::WriteTransaction;

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
    /// What is written today. Version 2 has tasks whose inputs are kept apart, which version 1 had
    /// not: its records are read as they are.
    pub(crate) const CURRENT: Self =
        Self { version: 2, steps: &[Step { from: 1, run: |_| Ok(()) }] };
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
