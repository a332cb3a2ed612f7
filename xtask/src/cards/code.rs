//! Reads a listing of machine code: its blocks, its loops, and the loop with a kernel's arithmetic.
//!
//! Mesa's compiler lays a loop out in one piece: it is all between the target of a jump backwards and that jump.

use super::instructions::Work;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The trips of a loop that does not tell them: what Mesa's own estimate takes.
const TRIPS: f64 = 8.;

/// Figures of a kernel's machine code.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Code {
    pub(super) instructions: u32,
    /// What each wave does once: all outside the loop below and those around it.
    pub(super) once: Work,
    /// One trip of the hottest loop: loops in it with all their trips, of the loops around it their share.
    pub(super) trip: Work,
    /// Reads of local memory in the hottest loop, by bytes: 4, 8 and 16.
    pub(super) reads: [u32; 3],
    /// Those below 16 bytes that have a neighbour of their kind, so that one read would do for both.
    pub(super) narrow: u32,
}

impl Code {
    /// The share of the peak that the hottest loop reaches at best: the busiest unit has no pause.
    pub(super) fn ceiling(&self) -> Option<f64> {
        (self.trip.macs > 0.).then(|| self.trip.macs / busiest(&self.trip))
    }

    /// That share if no unit works while another does.
    pub(super) fn in_turn(&self) -> Option<f64> {
        (self.trip.macs > 0.).then(|| self.trip.macs / in_turn(&self.trip))
    }
}

/// Turns of a wave if the busiest unit has no pause. Cycles of what four SIMDs share are turns of each.
pub(super) fn busiest(work: &Work) -> f64 {
    let scalar = work.scalar_turns / 4.;
    [work.vector_turns, work.lds_cycles, work.memory_cycles, scalar].into_iter().fold(0., f64::max)
}

/// Turns of a wave if no unit works while another does.
pub(super) fn in_turn(work: &Work) -> f64 {
    work.vector_turns + work.lds_cycles + work.memory_cycles + work.scalar_turns
}

#[derive(Default)]
struct Block<'a> {
    lines: Vec<&'a str>,
}

/// A loop: its first and last block, and the index of the loop around it.
struct Loop {
    first: usize,
    last: usize,
    parent: Option<usize>,
    trips: f64,
    /// Of the blocks that no inner loop has.
    own: Work,
}

/// Reads a listing; lines without code may be among it.
pub(super) fn read(listing: &str) -> Code {
    let (blocks, labels) = blocks(listing);
    let mut loops = loops(&blocks, &labels);
    let mut top = Work::default();
    for (i, block) in blocks.iter().enumerate() {
        let work = block.work();
        match innermost(&loops, i) {
            Some(index) => loops[index].own = loops[index].own + work,
            None => top = top + work,
        }
    }
    let instructions = blocks.iter().map(|block| block.lines.len()).sum::<usize>();
    let mut code =
        Code { instructions: u32::try_from(instructions).unwrap_or(u32::MAX), ..Code::default() };
    let rank = |of: &Loop| (of.own.macs, of.own.operations);
    let hottest = (0..loops.len()).max_by(|a, b| {
        let (a, b) = (rank(&loops[*a]), rank(&loops[*b]));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    let Some(hottest) = hottest.filter(|i| loops[*i].own.operations > 0.) else {
        code.once = within(&loops, None, None, top);
        return code;
    };
    code.trip = within(&loops, Some(hottest), None, loops[hottest].own);
    let (mut inner, mut share) = (hottest, 1.);
    while let Some(around) = loops[inner].parent {
        share /= loops[inner].trips;
        let rest = within(&loops, Some(around), Some(inner), loops[around].own);
        code.trip = code.trip + rest * share;
        inner = around;
    }
    code.once = within(&loops, None, Some(inner), top);
    let Loop { first, last, .. } = loops[hottest];
    let lines: Vec<&str> = blocks[first..=last].iter().flat_map(|b| b.lines.clone()).collect();
    (code.reads, code.narrow) = reads(&lines);
    code
}

/// `own` and the loops directly within `of`, but `except`, with all their trips.
fn within(loops: &[Loop], of: Option<usize>, except: Option<usize>, own: Work) -> Work {
    let inner = (0..loops.len()).filter(|i| loops[*i].parent == of && Some(*i) != except);
    inner.fold(own, |sum, i| sum + within(loops, Some(i), None, loops[i].own) * loops[i].trips)
}

/// Blocks in order, and the place of each label.
fn blocks(listing: &str) -> (Vec<Block<'_>>, HashMap<&str, usize>) {
    let (mut blocks, mut labels) = (vec![Block::default()], HashMap::new());
    for line in listing.lines() {
        let code = line.split(';').next().unwrap_or(line).trim();
        if let Some(label) = code.strip_suffix(':').filter(|label| label.starts_with("BB")) {
            labels.insert(label, blocks.len());
            blocks.push(Block::default());
        } else if line.starts_with('\t')
            && code.starts_with(|first: char| first.is_ascii_lowercase())
            && let Some(block) = blocks.last_mut()
        {
            block.lines.push(code);
        }
    }
    (blocks, labels)
}

impl Block<'_> {
    fn work(&self) -> Work {
        self.lines.iter().fold(Work::default(), |sum, line| sum + Work::of(word(line)))
    }
}

fn word(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or("")
}

/// The loops, outer ones first.
fn loops(blocks: &[Block], labels: &HashMap<&str, usize>) -> Vec<Loop> {
    let mut last: HashMap<usize, usize> = HashMap::new();
    for (i, block) in blocks.iter().enumerate() {
        let jumps = block.lines.iter().filter(|line| line.contains("branch"));
        let targets = jumps.filter_map(|line| labels.get(line.split_whitespace().last()?));
        for target in targets.filter(|target| **target <= i) {
            let last = last.entry(*target).or_insert(i);
            *last = i.max(*last);
        }
    }
    let mut spans: Vec<(usize, usize)> = last.into_iter().collect();
    spans.sort_by_key(|(first, last)| (*first, usize::MAX - last));
    let mut loops: Vec<Loop> = Vec::new();
    for &(first, last) in &spans {
        let parent = innermost(&loops, first);
        let within = |(a, b): &&(usize, usize)| *a > first && *b <= last;
        let inner: Vec<&(usize, usize)> = spans.iter().filter(within).collect();
        let own = (first..=last).filter(|i| !inner.iter().any(|(a, b)| (a..=b).contains(&i)));
        let own: Vec<&str> = own.flat_map(|i| blocks[i].lines.iter().copied()).collect();
        let before = blocks[..first].iter().flat_map(|block| block.lines.iter().copied());
        let trips = trips(&own, before).unwrap_or(TRIPS);
        loops.push(Loop { first, last, parent, trips, own: Work::default() });
    }
    loops
}

fn innermost(loops: &[Loop], block: usize) -> Option<usize> {
    let around = (0..loops.len()).filter(|i| (loops[*i].first..=loops[*i].last).contains(&block));
    around.min_by_key(|i| loops[*i].last - loops[*i].first)
}

/// The trips of a loop, of which these are its own lines and those before it: its counter starts at 0, grows by a
/// constant and is compared with one.
fn trips<'a>(
    own: &[&str],
    before: impl DoubleEndedIterator<Item = &'a str> + Clone,
) -> Option<f64> {
    own.iter().filter(|line| line.starts_with("s_cmp")).find_map(|line| {
        let compared = operands(line);
        let [counter, bound] = &compared[..] else { return None };
        let step = own.iter().find_map(|line| match (word(line), &operands(line)[..]) {
            ("s_add_u32" | "s_add_i32", [to, from, step]) if to == counter && from == counter => {
                number(step)
            }
            ("s_addk_i32", [to, step]) if to == counter => number(step),
            _ => None,
        })?;
        let mut set = before.clone().rev().filter(|line| operands(line).first() == Some(counter));
        let start = set.next().map(|line| (word(line), operands(line)))?;
        let bound = number(bound).filter(|bound| *bound > 0.)?;
        let starts_at_0 = start.0 == "s_mov_b32" && start.1.get(1).is_some_and(|it| *it == "0");
        (starts_at_0 && step > 0.).then(|| (bound / step).ceil())
    })
}

/// The operands of an instruction.
fn operands(line: &str) -> Vec<&str> {
    let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
    rest.split(',').map(str::trim).collect()
}

fn number(text: &str) -> Option<f64> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok().map(f64::from),
        None => text.parse::<i32>().ok().map(f64::from),
    }
}

/// Reads of local memory by bytes, and how many below 16 have a neighbour of their kind.
fn reads(lines: &[&str]) -> ([u32; 3], u32) {
    let (mut counts, mut narrow) = ([0; 3], 0);
    // By address register and bytes: places read since the register was last written.
    let mut open: HashMap<(String, u32), Vec<u32>> = HashMap::new();
    let close = |places: &mut Vec<u32>, bytes: u32| {
        places.sort_unstable();
        places.dedup();
        let has = |place: u32| places.binary_search(&place).is_ok();
        let near =
            places.iter().filter(|p| has(**p + bytes) || p.checked_sub(bytes).is_some_and(has));
        u32::try_from(near.count()).unwrap_or(u32::MAX)
    };
    for line in lines {
        if let Some((address, bytes, places)) = local_read(line) {
            let kind = [4, 8, 16].iter().position(|of| *of == bytes).unwrap_or(0);
            counts[kind] += 1;
            // Two of eight bytes are one access of sixteen.
            if bytes < 16 && !(bytes == 8 && places.len() == 2) {
                open.entry((address, bytes)).or_default().extend(places);
            }
        }
        for register in written(line) {
            let stale: Vec<_> = open.keys().filter(|(a, _)| *a == register).cloned().collect();
            for key in stale {
                narrow += open.remove(&key).map_or(0, |mut places| close(&mut places, key.1));
            }
        }
    }
    for ((_, bytes), mut places) in open {
        narrow += close(&mut places, bytes);
    }
    (counts, narrow)
}

/// The address register, the bytes and the places of a read of local memory.
fn local_read(line: &str) -> Option<(String, u32, Vec<u32>)> {
    let (mnemonic, rest) = line.split_once(' ')?;
    let kind = mnemonic.strip_prefix("ds_read")?;
    let bytes = match kind.rsplit_once('_')?.1 {
        "b128" => 16,
        "b64" => 8,
        _ => 4,
    };
    let address = rest.split(',').nth(1)?.split_whitespace().next()?.to_owned();
    let offset = |name: &str| -> u32 {
        let found = rest.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok());
        found.unwrap_or(0)
    };
    if kind.starts_with('2') {
        let step = if kind.contains("st64") { 64 * bytes } else { bytes };
        return Some((address, bytes, vec![step * offset("offset0:"), step * offset("offset1:")]));
    }
    Some((address, bytes, vec![offset("offset:")]))
}

/// The vector registers that an instruction writes.
fn written(line: &str) -> Vec<String> {
    let stores = word(line).contains("store") || word(line).contains("ds_write");
    let first = line.split_once(' ').and_then(|(_, rest)| rest.split(',').next());
    let Some(first) = first.map(str::trim).filter(|_| !stores) else { return Vec::new() };
    if let Some(range) = first.strip_prefix("v[").and_then(|rest| rest.strip_suffix(']')) {
        let ends =
            range.split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        return ends.map_or(Vec::new(), |(a, b): (u32, u32)| {
            (a..=b.min(a + 255)).map(|i| format!("v{i}")).collect()
        });
    }
    if first.starts_with('v') { vec![first.to_owned()] } else { Vec::new() }
}

#[cfg(test)]
mod tests;
