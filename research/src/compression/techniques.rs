//! The table of techniques.

mod few_bits;
mod static_int8;
mod weights_int8;

use super::technique::Technique;
use crate::error::{Error, Result};

/// Every technique: one file and one line each.
pub(crate) const TECHNIQUES: &[&dyn Technique] =
    &[&static_int8::StaticInt8, &weights_int8::WeightsInt8, &few_bits::FewBits];

/// The technique of a name.
///
/// # Errors
/// [`Error::Setting`] for a name that is not in the table.
pub(crate) fn find(name: &str) -> Result<&'static dyn Technique> {
    TECHNIQUES.iter().copied().find(|technique| technique.name() == name).ok_or_else(|| {
        let expected = "a technique of the table";
        Error::Setting { name: "the technique", value: name.to_owned(), expected }
    })
}
