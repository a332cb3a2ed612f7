//! How many inputs an operator may be given.

use crate::error::{Error, Result};
use std::ops::RangeInclusive;

/// Fails unless an operator of this [`Op::arity`](super::Op::arity) may be given so many inputs.
pub(crate) fn count(arity: &RangeInclusive<usize>, given: usize) -> Result<()> {
    if arity.contains(&given) {
        return Ok(());
    }
    let expected = match (*arity.start(), *arity.end()) {
        (least, most) if least == most => least.to_string(),
        (least, usize::MAX) => format!("at least {least}"),
        (least, most) => format!("{least} to {most}"),
    };
    Err(Error::invalid(format!("{given} inputs given, expected {expected}")))
}
