//! Trees in one array. A node's `yes` child is the next node, so that only the position of its `no`
//! child is stored.

use super::{Branch, Child, Trees};
use crate::error::{Error, Result};

/// A split or a leaf in 16 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    /// The threshold; for membership the index of the set.
    pub(super) threshold: f64,
    /// The feature's column in the low bits, the kind of node above them.
    tag: u32,
    /// The position of the `no` child, or a leaf's index.
    pub(super) other: u32,
}

const KIND_SHIFT: u32 = 27;
const MISSING_IS_YES: u32 = 1 << 31;
const COLUMN: u32 = (1 << KIND_SHIFT) - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    Equal,
    NotEqual,
    Member,
    Leaf,
}

impl Node {
    pub(super) fn kind(self) -> Kind {
        match (self.tag >> KIND_SHIFT) & 7 {
            0 => Kind::LessOrEqual,
            1 => Kind::Less,
            2 => Kind::GreaterOrEqual,
            3 => Kind::Greater,
            4 => Kind::Equal,
            5 => Kind::NotEqual,
            6 => Kind::Member,
            _ => Kind::Leaf,
        }
    }

    pub(super) fn column(self) -> usize {
        (self.tag & COLUMN) as usize
    }

    pub(super) fn missing_is_yes(self) -> bool {
        self.tag & MISSING_IS_YES != 0
    }
}

/// All trees.
#[derive(Debug)]
pub(super) struct Flat {
    pub(super) nodes: Vec<Node>,
    pub(super) roots: Vec<u32>,
    /// The sets of membership splits, sorted.
    pub(super) sets: Vec<Vec<f64>>,
    /// Leaf `i` adds `additions[starts[i]..starts[i + 1]]`.
    starts: Vec<u32>,
    additions: Vec<(u32, f64)>,
    /// Number of columns that a row must have.
    pub(super) columns: usize,
    /// The longest walk, for estimating cost.
    pub(super) depth: usize,
}

impl Flat {
    pub(super) fn new(trees: &Trees, targets: usize) -> Result<Self> {
        let mut flat = Self {
            nodes: Vec::with_capacity(trees.splits.len()),
            roots: Vec::with_capacity(trees.roots.len()),
            sets: Vec::new(),
            starts: vec![0],
            additions: Vec::new(),
            columns: 0,
            depth: 0,
        };
        for leaf in &trees.leaves {
            for &(target, value) in leaf {
                if target >= targets {
                    let message = format!("a leaf adds to target {target} of {targets}");
                    return Err(Error::invalid(message));
                }
                flat.additions.push((small(target)?, value));
            }
            flat.starts.push(small(flat.additions.len())?);
        }
        let mut seen = vec![false; trees.splits.len()];
        for &root in &trees.roots {
            flat.roots.push(small(flat.nodes.len())?);
            flat.tree(trees, root, &mut seen)?;
        }
        Ok(flat)
    }

    /// Lays one tree out. No split is laid out twice, so this ends whatever the indices say.
    fn tree(&mut self, trees: &Trees, root: Child, seen: &mut [bool]) -> Result<()> {
        // The nodes left to lay out: a child, the node whose `no` it is, and its depth.
        let mut left: Vec<(Child, Option<usize>, usize)> = vec![(root, None, 1)];
        while let Some((child, parent, depth)) = left.pop() {
            let place = small(self.nodes.len())?;
            if let Some(parent) = parent.and_then(|p| self.nodes.get_mut(p)) {
                parent.other = place;
            }
            self.depth = self.depth.max(depth);
            match child {
                Child::Leaf(leaf) => {
                    if leaf >= trees.leaves.len() {
                        return Err(lost("leaf", leaf, trees.leaves.len()));
                    }
                    let tag = (Kind::Leaf as u32) << KIND_SHIFT;
                    self.nodes.push(Node { threshold: 0., tag, other: small(leaf)? });
                }
                Child::Split(index) => {
                    let count = trees.splits.len();
                    let split =
                        trees.splits.get(index).ok_or_else(|| lost("split", index, count))?;
                    if std::mem::replace(&mut seen[index], true) {
                        let message = format!("split {index} is reached twice");
                        return Err(Error::invalid(message));
                    }
                    let column = small(split.feature)?;
                    if column > COLUMN {
                        let message = format!("feature {column}, expected at most {COLUMN}");
                        return Err(Error::invalid(message));
                    }
                    self.columns = self.columns.max(split.feature + 1);
                    let (kind, threshold) = self.kind(&split.branch)?;
                    let missing = if split.missing_is_yes { MISSING_IS_YES } else { 0 };
                    let tag = column | ((kind as u32) << KIND_SHIFT) | missing;
                    let parent = self.nodes.len();
                    self.nodes.push(Node { threshold, tag, other: 0 });
                    // The last one pushed is laid out next.
                    left.push((split.no, Some(parent), depth + 1));
                    left.push((split.yes, None, depth + 1));
                }
            }
        }
        Ok(())
    }

    fn kind(&mut self, branch: &Branch) -> Result<(Kind, f64)> {
        Ok(match branch {
            Branch::LessOrEqual(t) => (Kind::LessOrEqual, *t),
            Branch::Less(t) => (Kind::Less, *t),
            Branch::GreaterOrEqual(t) => (Kind::GreaterOrEqual, *t),
            Branch::Greater(t) => (Kind::Greater, *t),
            Branch::Equal(t) => (Kind::Equal, *t),
            Branch::NotEqual(t) => (Kind::NotEqual, *t),
            Branch::Member(members) => {
                let index = small(self.sets.len())?;
                let mut set = members.clone();
                set.sort_by(f64::total_cmp);
                self.sets.push(set);
                (Kind::Member, f64::from(index))
            }
        })
    }

    /// The targets and the values that a leaf adds to them.
    pub(super) fn additions(&self, leaf: u32) -> &[(u32, f64)] {
        let leaf = leaf as usize;
        &self.additions[self.starts[leaf] as usize..self.starts[leaf + 1] as usize]
    }
}

fn lost(what: &str, index: usize, count: usize) -> Error {
    Error::invalid(format!("{what} {index} is named, but there are {count}"))
}

fn small(n: usize) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::invalid(format!("{n} is too large")))
}
