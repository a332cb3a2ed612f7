//! Small ranges in constant time: blocks of 64 equal slots, with one bit per slot that is set while
//! it is free.

use super::ranges::Node;
use slab::Slab;

/// Slots of a block: the bits of its word.
const SLOTS: usize = 64;
/// The largest size with a class, in units of the alignment.
const UNITS_MAX: usize = 16;
/// Units of each class: four steps per doubling, so that rounding wastes less than a quarter.
const CLASSES: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16];

/// A slot of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) block: usize,
    pub(super) index: usize,
}

/// A block, and its place among the blocks of its class with free slots.
#[derive(Debug)]
struct Block {
    /// The range of the block.
    node: Node,
    class: usize,
    /// One bit per slot, set while the slot is free.
    free: u64,
    /// The index in its class's list; meaningless while no slot is free.
    listed: usize,
}

/// Blocks of all classes.
#[derive(Debug)]
pub(super) struct Bins {
    unit: usize,
    blocks: Slab<Block>,
    /// For each class, the blocks with free slots.
    open: [Vec<usize>; CLASSES.len()],
}

impl Bins {
    /// Starts without blocks; `unit` is the alignment.
    pub(super) fn new(unit: usize) -> Self {
        Self { unit, blocks: Slab::new(), open: Default::default() }
    }

    /// The class of a size, if the size is small enough.
    pub(super) fn class(&self, bytes: usize) -> Option<usize> {
        let units = bytes.div_ceil(self.unit).max(1);
        (units <= UNITS_MAX).then(|| CLASSES.partition_point(|&class| class < units))
    }

    /// Bytes of a slot of a class.
    pub(super) fn slot_bytes(&self, class: usize) -> usize {
        CLASSES[class] * self.unit
    }

    /// Bytes of a block of a class.
    pub(super) fn block_bytes(&self, class: usize) -> usize {
        SLOTS * self.slot_bytes(class)
    }

    /// Adds a block of a class in a taken range.
    pub(super) fn add(&mut self, class: usize, node: Node) {
        let listed = self.open[class].len();
        let block = self.blocks.insert(Block { node, class, free: u64::MAX, listed });
        self.open[class].push(block);
    }

    /// Takes a slot of a class, if a block has a free one.
    pub(super) fn take(&mut self, class: usize) -> Option<Slot> {
        let &block = self.open[class].last()?;
        let entry = &mut self.blocks[block];
        let index = entry.free.trailing_zeros() as usize;
        entry.free &= entry.free - 1;
        if entry.free == 0 {
            self.open[class].pop();
        }
        Some(Slot { block, index })
    }

    /// Frees a slot. Returns the range of the block if that was its last used slot; the block is
    /// then removed.
    pub(super) fn release(&mut self, slot: Slot) -> Option<Node> {
        let block = &mut self.blocks[slot.block];
        let open = &mut self.open[block.class];
        if block.free == 0 {
            block.listed = open.len();
            open.push(slot.block);
        }
        block.free |= 1 << slot.index;
        if block.free != u64::MAX {
            return None;
        }
        let Block { node, class, listed, .. } = self.blocks.remove(slot.block);
        self.open[class].swap_remove(listed);
        if let Some(&moved) = self.open[class].get(listed) {
            self.blocks[moved].listed = listed;
        }
        Some(node)
    }

    /// The range of a slot's block, the slot's offset in it, and its size.
    pub(super) fn place(&self, slot: Slot) -> (Node, usize, usize) {
        let block = &self.blocks[slot.block];
        let bytes = self.slot_bytes(block.class);
        (block.node, slot.index * bytes, bytes)
    }

    /// Records that a block was moved to another range.
    pub(super) fn move_block(&mut self, block: usize, node: Node) {
        if let Some(block) = self.blocks.get_mut(block) {
            block.node = node;
        }
    }
}
