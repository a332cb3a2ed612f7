//! Positions along the axes of values, tied to sets that can only be removed together.

use lgp_inference::Structure;
use std::collections::BTreeMap;

/// A position along an axis of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unit {
    /// The index in [`Structure::values`].
    pub(crate) value: usize,
    /// The axis.
    pub(crate) axis: usize,
    /// The position along it.
    pub(crate) position: usize,
}

/// All units of a structure's values whose shapes are known.
pub(super) struct Units {
    /// The first unit and the length of each axis of each value; `None` without a shape.
    axes: Vec<Option<Vec<(usize, usize)>>>,
    parents: Vec<usize>,
    /// Units that must stay, with the index of the reason.
    pins: BTreeMap<usize, usize>,
    reasons: Vec<String>,
}

impl Units {
    pub(super) fn new(structure: &Structure) -> Self {
        let mut total = 0;
        let axes = structure.values.iter().map(|value| {
            let shape = value.info.as_ref()?.ty.concrete_shape()?;
            let axes = shape.dims().iter().map(|&length| {
                total += length;
                (total - length, length)
            });
            Some(axes.collect())
        });
        let axes = axes.collect();
        Self { axes, parents: (0..total).collect(), pins: BTreeMap::new(), reasons: Vec::new() }
    }

    /// The rank of a value; `None` where its shape is not known.
    pub(super) fn rank(&self, value: usize) -> Option<usize> {
        self.axes.get(value)?.as_ref().map(Vec::len)
    }

    /// The length of an axis; `None` where it is not known.
    pub(super) fn length(&self, value: usize, axis: usize) -> Option<usize> {
        Some(self.axis(value, axis)?.1)
    }

    fn axis(&self, value: usize, axis: usize) -> Option<(usize, usize)> {
        self.axes.get(value)?.as_ref()?.get(axis).copied()
    }

    fn index(&self, unit: Unit) -> Option<usize> {
        let (first, length) = self.axis(unit.value, unit.axis)?;
        (unit.position < length).then_some(first + unit.position)
    }

    fn root(&mut self, mut unit: usize) -> usize {
        while self.parents[unit] != unit {
            self.parents[unit] = self.parents[self.parents[unit]];
            unit = self.parents[unit];
        }
        unit
    }

    /// Ties two units.
    pub(super) fn tie(&mut self, a: Unit, b: Unit) {
        let (Some(a), Some(b)) = (self.index(a), self.index(b)) else { return };
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b);
    }

    /// Keeps every position of an axis, for a reason.
    pub(super) fn pin(&mut self, value: usize, axis: usize, reason: &str) {
        let Some((first, length)) = self.axis(value, axis) else { return };
        let known = self.reasons.iter().rposition(|own| own == reason);
        let at = known.unwrap_or_else(|| {
            self.reasons.push(reason.to_owned());
            self.reasons.len() - 1
        });
        for unit in first..first + length {
            self.pins.entry(unit).or_insert(at);
        }
    }

    /// Keeps every position of every axis of a value.
    pub(super) fn pin_all(&mut self, value: usize, reason: &str) {
        (0..self.rank(value).unwrap_or(0)).for_each(|axis| self.pin(value, axis, reason));
    }

    /// Sets of tied units, ordered by their first unit, each with the first reason to stay.
    pub(super) fn sets(mut self) -> Vec<(Vec<Unit>, Option<String>)> {
        let mut sets: BTreeMap<usize, (Vec<Unit>, Option<usize>)> = BTreeMap::new();
        for (value, axes) in std::mem::take(&mut self.axes).into_iter().enumerate() {
            for (axis, (first, length)) in axes.into_iter().flatten().enumerate() {
                for position in 0..length {
                    let root = self.root(first + position);
                    let set = sets.entry(root).or_default();
                    set.0.push(Unit { value, axis, position });
                    set.1 = set.1.or(self.pins.get(&(first + position)).copied());
                }
            }
        }
        let reasons = &self.reasons;
        let sets = sets.into_values();
        sets.map(|(units, reason)| (units, reason.map(|at| reasons[at].clone()))).collect()
    }
}
