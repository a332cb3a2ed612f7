//! Repeats a tensor along its axes.

/// `Tile`: inputs data and the repeats (i64, one an axis).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tile;
crate::ops::stub!(Tile);
