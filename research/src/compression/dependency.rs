//! Which channels of a model can only be removed together, from the axes that its operators state.
//!
//! Positions along the axes of values are tied by a union-find ("DepGraph: Towards Any Structural
//! Pruning", Fang et al. 2023, there by a list of layers): an operator's axis of independent
//! positions ties its inputs and outputs, and the inner axis of a sum of products ties its factors.
//! Operators that move elements are run on numbered tensors.

mod cut;
mod probe;
mod remove;
#[cfg(test)]
mod tests;
mod units;

pub(crate) use units::Unit;

use lgp_compute::{Axis, AxisKind, ValueInfo};
use lgp_inference::{Model, Structure, StructureOp};
use lgp_memory::ValueKind;
use probe::{Link, Movement, zeros_do_not_count};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use units::Units;

/// An axis of a stored tensor: the index in [`Structure::values`], and the axis.
pub(crate) type StoredAxis = (usize, usize);

/// A channel: all positions that are removed together, ordered.
pub(crate) type Channel = Vec<Unit>;

/// The channels that are positions along the same axes of the same stored tensors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChannelGroup {
    /// The axes of stored tensors, ordered.
    pub(crate) stored: Vec<StoredAxis>,
    /// The channels, ordered by their first positions.
    pub(crate) channels: Vec<Channel>,
}

impl ChannelGroup {
    /// The positions of a channel along a stored axis.
    pub(crate) fn positions(&self, channel: usize, (value, axis): StoredAxis) -> Vec<usize> {
        let units = self.channels.get(channel).into_iter().flatten();
        let own = units.filter(|unit| (unit.value, unit.axis) == (value, axis));
        own.map(|unit| unit.position).collect()
    }
}

/// The dependencies between the channels of a model.
///
/// The model's inputs and outputs keep their sizes, and so do axes along which an operator slides
/// windows, picks by index, or needs all positions: a softmax, a mean, a norm. A channel that would
/// reach such an axis stays. Axes that become one axis, or the reverse, are tied by the first of
/// them with more than one position: heads of an attention are removed whole.
#[derive(Debug)]
pub(crate) struct DependencyGraph<'a> {
    model: &'a Model,
    structure: Structure,
    /// Values that are stored in the model.
    stored: HashSet<usize>,
    /// Links of moved positions, with their operators.
    links: Vec<(usize, Link)>,
    groups: Vec<ChannelGroup>,
    kept: BTreeMap<String, BTreeSet<StoredAxis>>,
}

impl<'a> DependencyGraph<'a> {
    /// Finds the dependencies of a model's channels in its structure.
    pub(crate) fn new(model: &'a Model, structure: Structure) -> Self {
        let mut units = Units::new(&structure);
        let mut links = Vec::new();
        for (index, operator) in structure.operators.iter().enumerate() {
            let own = tie_operator(&structure, operator, &mut units);
            links.extend(own.into_iter().map(|link| (index, link)));
        }
        let ends = structure.inputs.iter().chain(&structure.outputs);
        ends.for_each(|&id| units.pin_all(id, "the model's inputs and outputs keep their sizes"));
        let stored = stored_values(model, &structure);
        let made: HashSet<usize> = made(&structure);
        for (id, value) in structure.values.iter().enumerate() {
            let constant = value.info.as_ref().is_some_and(|info| info.constant.is_some());
            if constant && !made.contains(&id) && !stored.contains(&id) {
                units.pin_all(id, "a constant is not stored in the model");
            }
        }
        let mut groups: BTreeMap<Vec<StoredAxis>, Vec<Channel>> = BTreeMap::new();
        let mut kept: BTreeMap<String, BTreeSet<StoredAxis>> = BTreeMap::new();
        for (set, reason) in units.sets() {
            let axes = set.iter().map(|unit| (unit.value, unit.axis));
            let axes: BTreeSet<StoredAxis> = axes.filter(|(id, _)| stored.contains(id)).collect();
            match reason {
                _ if axes.is_empty() => {}
                Some(reason) => kept.entry(reason).or_default().extend(axes),
                None => groups.entry(axes.into_iter().collect()).or_default().push(set),
            }
        }
        let mut groups: Vec<ChannelGroup> = groups
            .into_iter()
            .map(|(stored, channels)| ChannelGroup { stored, channels })
            .collect();
        groups.retain(|group| group.channels.len() > 1);
        groups.sort_by(|a, b| a.channels.cmp(&b.channels));
        Self { model, structure, stored, links, groups, kept }
    }

    /// The model's operators.
    pub(crate) fn structure(&self) -> &Structure {
        &self.structure
    }

    /// The groups of channels that can be removed.
    pub(crate) fn groups(&self) -> &[ChannelGroup] {
        &self.groups
    }

    /// The name of a value.
    pub(crate) fn name(&self, value: usize) -> &str {
        self.structure.values.get(value).map_or("", |value| &value.name)
    }

    /// Sentences on the weights' axes that keep their sizes, and why. Vectors, and axes of a single
    /// position, are not among them.
    pub(crate) fn kept(&self) -> Vec<String> {
        let length = |&(value, axis): &StoredAxis| {
            let info = self.structure.values.get(value)?.info.as_ref()?;
            let shape = info.ty.concrete_shape().filter(|shape| shape.rank() > 1)?;
            shape.dims().get(axis).copied().filter(|&length| length > 1)
        };
        let sentences = self.kept.iter().filter_map(|(reason, axes)| {
            let mut axes = axes.iter().filter(|at| length(at).is_some());
            let (value, axis) = axes.next()?;
            let more = match axes.count() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            Some(format!("'{}' axis {axis}{more} kept: {reason}", self.name(*value)))
        });
        sentences.collect()
    }
}

/// Values that operators make.
fn made(structure: &Structure) -> HashSet<usize> {
    structure.operators.iter().flat_map(|it| it.outputs.iter().flatten().copied()).collect()
}

/// Constants that the model stores under their own names: initializers that are no inputs, and the
/// outputs of nodes that are no operators.
fn stored_values(model: &Model, structure: &Structure) -> HashSet<usize> {
    let made = made(structure);
    let nodes: HashSet<&String> = model.nodes().iter().flat_map(|node| &node.outputs).collect();
    let values = structure.values.iter().enumerate();
    let stored = values.filter(|(id, value)| {
        let info = value.info.as_ref();
        let constant = info.is_some_and(|info| info.constant.is_some());
        let named = model.initializers().contains_key(&value.name) || nodes.contains(&value.name);
        let default = model.defaults().iter().any(|spec| spec.name == value.name);
        constant && named && !default && !made.contains(id)
    });
    stored.map(|(id, _)| id).collect()
}

/// Ties the positions of one operator's values; answers the links of moved positions.
fn tie_operator(structure: &Structure, operator: &StructureOp, units: &mut Units) -> Vec<Link> {
    let (infos, outputs) = (structure.infos(operator), structure.output_infos(operator));
    let info = |id: &usize| structure.values.get(*id).and_then(|value| value.info.as_ref());
    let is_constant = |info: &ValueInfo| info.constant.is_some();
    let makes_constants =
        operator.outputs.iter().flatten().all(|id| info(id).is_some_and(is_constant));
    if makes_constants && !infos.iter().flatten().all(|info| is_constant(info)) {
        // The results depend on the inputs' shapes alone, and follow them.
        return Vec::new();
    }
    for id in operator.inputs.iter().chain(&operator.outputs).flatten() {
        if info(id).is_some_and(|info| info.kind != ValueKind::Tensor) {
            units.pin_all(*id, "a value holds several tensors");
        }
    }
    let name = operator.op.name();
    let axes = operator.op.axes(&infos, &outputs);
    for axis in axes.iter() {
        let reason = match axis.kind {
            AxisKind::Each => None,
            AxisKind::All if axis.outputs.is_empty() => {
                let independent = zeros_do_not_count(&operator.op, axis, &infos, &outputs);
                (!independent).then(|| format!("{name} needs all positions"))
            }
            AxisKind::All => Some(format!("{name} needs all positions")),
            AxisKind::Window { .. } => Some(format!("{name} has windows")),
            AxisKind::Picked { .. } => Some(format!("{name} picks by index")),
        };
        tie_axis(operator, axis, units, reason);
    }
    let open_of = |ids: &[Option<usize>], stated: &dyn Fn(usize, usize) -> bool| {
        let places = ids.iter().enumerate().filter_map(|(at, id)| Some((at, (*id)?)));
        let all = places
            .flat_map(|(at, id)| (0..units.rank(id).unwrap_or(0)).map(move |axis| (at, axis)));
        all.filter(|&(at, axis)| !stated(at, axis)).collect::<Vec<_>>()
    };
    let inputs = open_of(&operator.inputs, &|at, axis| axes.of_input(at, axis).is_some());
    let made = open_of(&operator.outputs, &|at, axis| axes.of_output(at, axis).is_some());
    let known = |id: &Option<usize>| id.is_none_or(|id| units.rank(id).is_some());
    let can_move = operator.op.moves()
        && operator.outputs.iter().all(Option::is_some)
        && operator.inputs.iter().chain(&operator.outputs).all(known);
    let links = match can_move {
        true => {
            Movement { op: &*operator.op, infos: &infos, outputs: &outputs }.links(&inputs, &made)
        }
        false => Vec::new(),
    };
    tie_links(operator, &links, [inputs, made], units);
    links
}

/// Ties linked positions, and keeps those of the other axes that the operator states nothing of.
fn tie_links(
    operator: &StructureOp,
    links: &[Link],
    [inputs, outputs]: [Vec<(usize, usize)>; 2],
    units: &mut Units,
) {
    for link in links {
        let values = (operator.inputs[link.input.0], operator.outputs[link.output.0]);
        let (Some(from), Some(to)) = values else { continue };
        for &(p, q) in &link.pairs {
            units.tie(
                Unit { value: from, axis: link.input.1, position: p },
                Unit { value: to, axis: link.output.1, position: q },
            );
        }
    }
    let name = operator.op.name();
    let reason = match operator.op.moves() {
        true => format!("{name} divides or joins the axis"),
        false => format!("{name} states nothing of the axis"),
    };
    for (i, axis) in inputs.into_iter().filter(|at| !links.iter().any(|link| link.input == *at)) {
        operator.inputs[i].iter().for_each(|&id| units.pin(id, axis, &reason));
    }
    for (o, axis) in outputs.into_iter().filter(|at| !links.iter().any(|link| link.output == *at)) {
        operator.outputs[o].iter().for_each(|&id| units.pin(id, axis, &reason));
    }
}

/// Ties the positions of a stated axis, or keeps them for a reason.
fn tie_axis(operator: &StructureOp, axis: &Axis, units: &mut Units, reason: Option<String>) {
    let input = |&(i, at): &(usize, usize)| Some(((*operator.inputs.get(i)?)?, at));
    let output = |&(o, at): &(usize, usize)| Some(((*operator.outputs.get(o)?)?, at));
    let all: Vec<StoredAxis> = axis
        .inputs
        .iter()
        .filter_map(input)
        .chain(axis.outputs.iter().filter_map(output))
        .collect();
    let lengths: Vec<Option<usize>> = all.iter().map(|&(id, at)| units.length(id, at)).collect();
    let longest = lengths.iter().flatten().copied().max().unwrap_or(0);
    // An input of one position is broadcast.
    let same = lengths.iter().all(|length| matches!(length, Some(n) if *n == longest || *n == 1));
    let reason = match (reason, same) {
        (None, false) => Some(format!("{} has sizes that are not known", operator.op.name())),
        (reason, _) => reason,
    };
    if let Some(reason) = reason {
        all.iter().for_each(|&(id, at)| units.pin(id, at, &reason));
        return;
    }
    let tied: Vec<StoredAxis> = all
        .iter()
        .zip(&lengths)
        .filter(|(_, length)| **length == Some(longest))
        .map(|(at, _)| *at)
        .collect();
    let Some(&(first, first_axis)) = tied.first() else { return };
    for &(id, at) in &tied[1..] {
        for position in 0..longest {
            units.tie(
                Unit { value: first, axis: first_axis, position },
                Unit { value: id, axis: at, position },
            );
        }
    }
}
