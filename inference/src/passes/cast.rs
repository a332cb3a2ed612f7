//! Shortens chains of casts: a detour through a dtype that holds every value changes nothing.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_memory::DType;

#[derive(Debug)]
pub(crate) struct CastElimination;

impl Pass for CastElimination {
    fn name(&self) -> &'static str {
        "cast-elimination"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let producers = graph.producers();
        let mut same: Vec<ValueId> = (0..graph.values.len()).map(ValueId).collect();
        for index in 0..graph.nodes.len() {
            for input in graph.nodes[index].inputs.iter_mut().flatten() {
                *input = same[input.0];
            }
            let Some(to) = graph.nodes[index].op.casts_to() else { continue };
            let (Some(&Some(middle)), Some(&Some(out))) =
                (graph.nodes[index].inputs.first(), graph.nodes[index].outputs.first())
            else {
                continue;
            };
            let Some(first) =
                producers[middle.0].filter(|&p| graph.nodes[p].op.casts_to().is_some())
            else {
                continue;
            };
            let Some(&Some(source)) = graph.nodes[first].inputs.first() else { continue };
            let dtype = |id: ValueId| graph.info(id).map(|info| info.ty.dtype);
            let (Some(from), Some(through)) = (dtype(source), dtype(middle)) else { continue };
            // If `to` cannot hold all values of `from`, the result for the others depends on the
            // way: integers wrap, floats saturate.
            let floats = !is_integer(through) && is_integer(from);
            if to == DType::Str || !holds(through, from) || (floats && !holds(to, from)) {
                continue;
            }
            graph.nodes[index].inputs[0] = Some(source);
            if from == to {
                same[out.0] = source;
            }
        }
        for (_, output) in &mut graph.outputs {
            *output = same[output.0];
        }
        Ok(())
    }
}

/// Signedness and width of an integer.
fn integer(dtype: DType) -> Option<(bool, u32)> {
    use DType as D;
    match dtype {
        D::U8 => Some((false, 8)),
        D::U16 => Some((false, 16)),
        D::U32 => Some((false, 32)),
        D::U64 => Some((false, 64)),
        D::I8 => Some((true, 8)),
        D::I16 => Some((true, 16)),
        D::I32 => Some((true, 32)),
        D::I64 => Some((true, 64)),
        _ => None,
    }
}

fn is_integer(dtype: DType) -> bool {
    integer(dtype).is_some()
}

/// Whether `wide` holds every value of `narrow` exactly.
fn holds(wide: DType, narrow: DType) -> bool {
    use DType as D;
    if wide == narrow {
        return true;
    }
    let significand = |dtype| match dtype {
        D::F32 => Some(24),
        D::F64 => Some(53),
        _ => None,
    };
    match (wide, narrow) {
        (D::F32, D::F16 | D::BF16) | (D::F64, D::F16 | D::BF16 | D::F32) => true,
        (wide, narrow) => match (integer(wide), significand(wide), integer(narrow)) {
            (Some((true, bits)), _, Some((false, less))) => less < bits,
            (Some((signed, bits)), _, Some((other, less))) => signed == other && less <= bits,
            (None, Some(bits), Some((_, less))) => less <= bits,
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::tests::{graph_of, type_of};
    use crate::{Attr, GraphBuilder};

    #[test]
    fn detours_go_where_nothing_is_lost() -> Result<()> {
        // ONNX's numbers: 1 f32, 10 f16, 6 i32, 7 i64, 3 i8.
        for (from, through, to, left) in [
            (DType::F16, 1, 10, 0),
            (DType::I32, 7, 6, 0),
            (DType::I8, 1, 7, 1),
            (DType::F32, 10, 1, 2),
            (DType::I64, 1, 7, 2),
            // 200 is 127 in i8 by way of f32, and -56 without it.
            (DType::U8, 1, 3, 2),
            (DType::U8, 1, 6, 1),
        ] {
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", type_of(from, &[None]));
            let a = g.node("Cast", &[x], [("to", Attr::from(through))]);
            let b = g.node("Cast", &[a], [("to", Attr::from(to))]);
            let c = g.node("Identity", &[b], []);
            g.output("y", c, type_of(DType::F32, &[None]));
            let mut graph = graph_of(g)?;
            graph.infer()?;
            CastElimination.run(&mut graph)?;
            super::super::dead_code::DeadCodeElimination.run(&mut graph)?;
            assert_eq!(graph.nodes.len(), left + 1, "{from} {through} {to}");
        }
        Ok(())
    }
}
