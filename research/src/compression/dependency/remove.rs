//! Removes channels: cuts stored tensors, mends lengths that nodes hold as numbers, and checks what
//! became of every value.

mod check;

use super::{DependencyGraph, cut};
use crate::compression::rewrite::Rewrite;
use lgp_compute::{Op, ValueInfo};
use lgp_inference::{Attr, Model, StructureOp};
use lgp_memory::{Shape, Tensor};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A model without some channels.
#[derive(Debug)]
pub(crate) struct Removed {
    /// The model.
    pub(crate) model: Model,
    /// Groups that keep all channels because the model would not hold without them, and why.
    pub(crate) refused: Vec<(usize, String)>,
}

/// Removed positions of an axis of a value.
type Gone = BTreeMap<(usize, usize), BTreeSet<usize>>;

impl DependencyGraph<'_> {
    /// The model without these channels of each group, in the order of the groups. `shapes` are
    /// those of the structure, and `model` differs from the graph's in its stored values at most.
    pub(crate) fn remove(
        &self,
        model: &Model,
        shapes: &[(&str, Shape)],
        chosen: &[Vec<usize>],
    ) -> Removed {
        let all: BTreeSet<usize> =
            (0..chosen.len()).filter(|&group| !chosen[group].is_empty()).collect();
        if let Ok(model) = self.without(model, shapes, &self.gone(&all, chosen)) {
            return Removed { model, refused: Vec::new() };
        }
        let mut refused = Vec::new();
        let mut good = BTreeSet::new();
        let mut best = model.clone();
        for group in all {
            good.insert(group);
            match self.without(model, shapes, &self.gone(&good, chosen)) {
                Ok(model) => best = model,
                Err(reason) => {
                    good.remove(&group);
                    refused.push((group, reason));
                }
            }
        }
        Removed { model: best, refused }
    }

    fn gone(&self, groups: &BTreeSet<usize>, chosen: &[Vec<usize>]) -> Gone {
        let mut gone = Gone::new();
        for &at in groups {
            let Some(group) = self.groups.get(at) else { continue };
            for unit in chosen[at].iter().filter_map(|&c| group.channels.get(c)).flatten() {
                gone.entry((unit.value, unit.axis)).or_default().insert(unit.position);
            }
        }
        gone
    }

    fn without(
        &self,
        model: &Model,
        shapes: &[(&str, Shape)],
        gone: &Gone,
    ) -> Result<Model, String> {
        // A computed shape mostly follows by itself.
        self.attempt(model, shapes, gone, false)
            .or_else(|_| self.attempt(model, shapes, gone, true))
    }

    fn attempt(
        &self,
        model: &Model,
        shapes: &[(&str, Shape)],
        gone: &Gone,
        all_shapes: bool,
    ) -> Result<Model, String> {
        let change = Change { graph: self, gone };
        let mut rewrite = Rewrite::new(model.clone().into_parts());
        change.cut_stored(&mut rewrite)?;
        let mut wanted = HashMap::new();
        for (index, operator) in self.structure.operators.iter().enumerate() {
            if let Some(op) = change.mend_lengths(operator, &mut rewrite)? {
                wanted.insert(index, format!("{op:?}"));
            }
            change.mend_shape(operator, &mut rewrite, all_shapes)?;
            change.mend_parts(index, operator, &mut rewrite)?;
        }
        let model = rewrite.parts.finish().map_err(|error| error.to_string())?;
        change.check(&model, shapes, &wanted)?;
        Ok(model)
    }
}

struct Change<'a> {
    graph: &'a DependencyGraph<'a>,
    gone: &'a Gone,
}

impl Change<'_> {
    fn info(&self, value: Option<usize>) -> Option<&ValueInfo> {
        self.graph.structure.values.get(value?)?.info.as_ref()
    }

    /// The sizes of a value before and after.
    fn dims(&self, value: Option<usize>) -> Option<(Vec<usize>, Vec<usize>)> {
        let before = self.info(value)?.ty.concrete_shape()?.dims().to_vec();
        let gone =
            |axis: usize| self.gone.get(&(value.unwrap_or(0), axis)).map_or(0, BTreeSet::len);
        let after = before.iter().enumerate().map(|(axis, &n)| n.saturating_sub(gone(axis)));
        let after = after.collect();
        Some((before, after))
    }

    fn cut_stored(&self, rewrite: &mut Rewrite) -> Result<(), String> {
        let structure = &self.graph.structure;
        let is_stored = |id: &usize| self.graph.stored.contains(id);
        for (&(id, axis), gone) in self.gone.iter().filter(|((id, _), _)| is_stored(id)) {
            let name = &structure.values[id].name;
            let constant = self.info(Some(id)).and_then(|info| info.constant.as_ref());
            let tensor = rewrite.parts.initializers.get(name).or(constant);
            let tensor = tensor.ok_or_else(|| format!("'{name}' is not stored"))?;
            let length = tensor.shape().dims().get(axis).copied().unwrap_or(0);
            let kept: Vec<usize> = (0..length).filter(|at| !gone.contains(at)).collect();
            if kept.is_empty() {
                return Err(format!("'{name}' would have no positions along axis {axis}"));
            }
            let cut = cut::kept(tensor, axis, &kept).map_err(|error| error.to_string())?;
            store(rewrite, name, cut);
        }
        Ok(())
    }

    /// Sets the attribute that holds a changed length; answers the operator as it should be read.
    fn mend_lengths(
        &self,
        operator: &StructureOp,
        rewrite: &mut Rewrite,
    ) -> Result<Option<Arc<dyn Op>>, String> {
        let structure = &self.graph.structure;
        let (infos, outputs) = (structure.infos(operator), structure.output_infos(operator));
        let mut wanted: Option<Arc<dyn Op>> = None;
        for axis in operator.op.axes(&infos, &outputs).iter() {
            let inputs = axis.inputs.iter().map(|&(i, at)| (operator.inputs.get(i), at));
            let made = axis.outputs.iter().map(|&(o, at)| (operator.outputs.get(o), at));
            let changed = inputs.chain(made).find_map(|(id, at)| {
                let (before, after) = self.dims(*id?)?;
                let (before, after) = (*before.get(at)?, *after.get(at)?);
                (before != after).then_some((before, after))
            });
            let Some((before, after)) = changed else { continue };
            let op = wanted.as_deref().unwrap_or(&*operator.op);
            let Some(op) = op.for_length(axis, after) else { continue };
            let Some(node) = rewrite.parts.nodes.get_mut(operator.node) else { continue };
            let held = node.attributes.values_mut().find_map(|attribute| match attribute {
                Attr::Int(value) if usize::try_from(*value) == Ok(before) => Some(value),
                _ => None,
            });
            let name = &node.name;
            let held = held.ok_or_else(|| format!("'{name}' has no attribute of {before}"))?;
            *held = int(after);
            wanted = Some(op);
        }
        Ok(wanted)
    }

    /// Changes the numbers of a stored shape; of a computed one too if `all` is set.
    fn mend_shape(
        &self,
        operator: &StructureOp,
        rewrite: &mut Rewrite,
        all: bool,
    ) -> Result<(), String> {
        let Some(input) = operator.op.shape_input() else { return Ok(()) };
        let id = operator.inputs.get(input).copied().flatten();
        let made = self.dims(operator.outputs.first().copied().flatten());
        let (Some(id), Some((before, after))) = (id, made) else { return Ok(()) };
        let stored = self.graph.stored.contains(&id);
        if before == after || !(stored || all) {
            return Ok(());
        }
        let given = self.dims(operator.inputs.first().copied().flatten());
        let (given, given_after) = given.unwrap_or_default();
        let constant = self.info(Some(id)).and_then(|info| info.constant.as_ref());
        let entries: Vec<i64> = match constant.map(|it| it.as_slice::<i64>()) {
            Some(entries) => entries.map_err(|error| error.to_string())?.to_vec(),
            None => before.iter().map(|&n| int(n)).collect(),
        };
        let skipped = before.len().saturating_sub(entries.len());
        let mut open = !stored;
        let sizes = entries.iter().enumerate().map(|(at, &entry)| {
            let axis = at + skipped;
            let (old, new) = (before.get(axis), after.get(axis));
            let as_given = given.get(axis) == old && given_after.get(axis) == new;
            match new {
                _ if stored && (entry < 1 || old == new) => entry,
                // The sizes of a computed shape may differ in another run.
                _ if !stored && as_given && skipped == 0 => 0,
                _ if old == new && std::mem::take(&mut open) => -1,
                Some(&new) => int(new),
                None => entry,
            }
        });
        let sizes: Vec<i64> = sizes.collect();
        self.replace(operator, input, &sizes, rewrite)
    }

    /// Changes the stored lengths of the parts that an operator divides an axis into.
    fn mend_parts(
        &self,
        index: usize,
        operator: &StructureOp,
        rewrite: &mut Rewrite,
    ) -> Result<(), String> {
        let links: Vec<_> =
            self.graph.links.iter().filter(|(at, _)| *at == index).map(|(_, link)| link).collect();
        if operator.outputs.len() < 2 || links.len() != operator.outputs.len() {
            return Ok(());
        }
        let mut lengths = Vec::with_capacity(links.len());
        for (o, id) in operator.outputs.iter().enumerate() {
            let axis = links.iter().find(|link| link.output.0 == o).map(|link| link.output.1);
            let Some(((before, after), axis)) = self.dims(*id).zip(axis) else { return Ok(()) };
            lengths.push((int(before[axis]), int(after[axis])));
        }
        let (before, after): (Vec<i64>, Vec<i64>) = lengths.into_iter().unzip();
        if before == after {
            return Ok(());
        }
        let held = operator.inputs.iter().position(|&id| {
            let constant = self.info(id).and_then(|info| info.constant.as_ref());
            constant.and_then(|it| it.as_slice::<i64>().ok()) == Some(&before[..])
        });
        if let Some(input) = held {
            return self.replace(operator, input, &after, rewrite);
        }
        let attributes =
            rewrite.parts.nodes.get_mut(operator.node).map(|node| &mut node.attributes);
        for attribute in attributes.into_iter().flat_map(BTreeMap::values_mut) {
            if *attribute == Attr::Ints(before.clone()) {
                *attribute = Attr::Ints(after.clone());
            }
        }
        Ok(())
    }

    /// Stores numbers for one input of an operator's node.
    fn replace(
        &self,
        operator: &StructureOp,
        input: usize,
        numbers: &[i64],
        rewrite: &mut Rewrite,
    ) -> Result<(), String> {
        let name = self.graph.name(operator.inputs.get(input).copied().flatten().unwrap_or(0));
        let free = rewrite.name(name);
        let node = rewrite.parts.nodes.get_mut(operator.node);
        let place = node.and_then(|node| node.inputs.iter_mut().find(|own| *own == name));
        let place = place.ok_or_else(|| format!("'{name}' is inside a node"))?;
        place.clone_from(&free);
        let tensor = Tensor::from_slice([numbers.len()], numbers);
        rewrite.parts.initializers.insert(free, tensor.map_err(|error| error.to_string())?);
        Ok(())
    }
}

/// Stores a tensor under a name that an initializer has, or the output of a node.
fn store(rewrite: &mut Rewrite, name: &str, tensor: Tensor) {
    let unread = rewrite.name(&format!("{name}.unread"));
    let outputs = rewrite.parts.nodes.iter_mut().flat_map(|node| &mut node.outputs);
    outputs.filter(|output| *output == name).for_each(|output| output.clone_from(&unread));
    rewrite.parts.initializers.insert(name.to_owned(), tensor);
}

fn int(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
