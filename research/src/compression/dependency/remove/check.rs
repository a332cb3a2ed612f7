//! Checks a model without some channels against what the removal should have made.

use super::Change;
use crate::compression::dependency::probe::Movement;
use lgp_inference::{Model, Structure, StructureOp};
use lgp_memory::Shape;
use std::collections::{BTreeSet, HashMap};

impl Change<'_> {
    /// Checks that every value has the expected size, that attributes are read as expected, and
    /// that positions move as before.
    pub(super) fn check(
        &self,
        model: &Model,
        shapes: &[(&str, Shape)],
        wanted: &HashMap<usize, String>,
    ) -> Result<(), String> {
        let old = &self.graph.structure;
        let new = model.structure(shapes).map_err(|error| error.to_string())?;
        let found: HashMap<(&str, usize), &StructureOp> =
            operator_names(model, &new).into_iter().zip(&new.operators).collect();
        let names = operator_names(self.graph.model, old);
        for (index, (before, name)) in old.operators.iter().zip(&names).enumerate() {
            // Operators that compute a shape which is now stored are gone.
            let Some(after) = found.get(name) else { continue };
            let name = after.op.name();
            if before.op.name() != name || before.outputs.len() != after.outputs.len() {
                return Err(format!("{} became {name}", before.op.name()));
            }
            if wanted.get(&index).is_some_and(|wanted| *wanted != format!("{:?}", after.op)) {
                return Err(format!("{name} is read as {:?}", after.op));
            }
            let ids = before.outputs.iter().chain(&before.inputs);
            for (&old_id, &new_id) in ids.zip(after.outputs.iter().chain(&after.inputs)) {
                let Some((was, expected)) = self.dims(old_id) else { continue };
                let info = new_id.and_then(|id| new.values.get(id)?.info.as_ref());
                let found = info.and_then(|info| info.ty.concrete_shape());
                let found = found.map(|shape| shape.dims().to_vec());
                if found.as_ref() != Some(&expected) {
                    return Err(format!(
                        "{name} has sizes {found:?} instead of {was:?}, expected {expected:?}"
                    ));
                }
            }
            let (infos, outputs) = (new.infos(after), new.output_infos(after));
            let movement = Movement { op: &*after.op, infos: &infos, outputs: &outputs };
            for (_, link) in self.graph.links.iter().filter(|(at, _)| *at == index) {
                let from = (before.inputs[link.input.0].unwrap_or(0), link.input.1);
                let to = (before.outputs[link.output.0].unwrap_or(0), link.output.1);
                if !self.gone.contains_key(&from) && !self.gone.contains_key(&to) {
                    continue;
                }
                let pairs = link.pairs.iter();
                let moved: BTreeSet<(usize, usize)> = pairs
                    .filter_map(|&(p, q)| Some((self.moved(from, p)?, self.moved(to, q)?)))
                    .collect();
                if movement.pairs_of(link).as_ref() != Some(&moved) {
                    return Err(format!("{name} would move other positions"));
                }
            }
        }
        Ok(())
    }

    /// Where a position is after the removal.
    fn moved(&self, axis: (usize, usize), position: usize) -> Option<usize> {
        let Some(gone) = self.gone.get(&axis) else { return Some(position) };
        (!gone.contains(&position)).then(|| position - gone.range(..position).count())
    }
}

/// A name for each operator: the first output of its node, and its number in the node.
fn operator_names<'a>(model: &'a Model, structure: &Structure) -> Vec<(&'a str, usize)> {
    let mut last = (usize::MAX, 0);
    let names = structure.operators.iter().map(|operator| {
        let number = if last.0 == operator.node { last.1 + 1 } else { 0 };
        last = (operator.node, number);
        let node = model.nodes().get(operator.node);
        (node.and_then(|node| node.outputs.first()).map_or("", String::as_str), number)
    });
    names.collect()
}
