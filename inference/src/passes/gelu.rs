//! Recognises GELU that is written out with the error function or with tanh.

use super::Pass;
use super::pattern::{Pattern, Rewrite, rewrite};
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::{BinaryKind, Unary, UnaryKind};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct GeluFusion;

impl Pass for GeluFusion {
    fn name(&self) -> &'static str {
        "gelu-fusion"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        rewrite(graph, |pattern, node| {
            let out = pattern.output(node)?;
            pattern.binary(out, BinaryKind::Mul)?;
            // The factor 1 + erf(…) or 1 + tanh(…) tells what x is.
            let (cdf, x, tanh) =
                pattern.factors(out, &[]).into_iter().find_map(|id| distribution(pattern, id))?;
            let mut rest = pattern.factors(out, &[x, cdf]);
            for known in [x, cdf] {
                let at = rest.iter().position(|&id| id == known)?;
                rest.swap_remove(at);
            }
            let half = matches!(rest.as_slice(), [c] if pattern.is(*c, 0.5));
            (half && pattern.alike(x, out)).then(|| Rewrite {
                node,
                op: Arc::new(Unary::new(UnaryKind::Gelu { tanh })),
                inputs: vec![Some(x)],
            })
        })
    }
}

/// Twice the normal distribution of x: the value itself, x, and whether tanh approximates it.
fn distribution(pattern: &Pattern<'_>, id: ValueId) -> Option<(ValueId, ValueId, bool)> {
    let (inner, one) = pattern.with_scalar(id, BinaryKind::Add)?;
    if (one - 1.).abs() > 1e-6 {
        return None;
    }
    if let Some(inner) = pattern.unary(inner, UnaryKind::Erf) {
        let (x, factor) = pattern.scaled(inner)?;
        let root = std::f32::consts::FRAC_1_SQRT_2;
        return ((factor - root).abs() < 1e-5).then_some((id, x, false));
    }
    let inner = pattern.unary(inner, UnaryKind::Tanh)?;
    let (sum, factor) = pattern.scaled(inner)?;
    if (factor - 0.797_884_6).abs() > 1e-5 {
        return None;
    }
    let orders = pattern.either(sum, BinaryKind::Add)?;
    let [x, _] = orders.into_iter().find(|[x, cubic]| is_cubic(pattern, *x, *cubic))?;
    Some((id, x, true))
}

/// Whether a value is `0.044715 · x³`.
fn is_cubic(pattern: &Pattern<'_>, x: ValueId, id: ValueId) -> bool {
    let mut factors = pattern.factors(id, &[x]);
    let Some(at) = factors.iter().position(|&f| pattern.is(f, 0.044_715)) else { return false };
    factors.swap_remove(at);
    match factors.as_slice() {
        [a, b, c] => [a, b, c].iter().all(|f| **f == x),
        [power] => pattern
            .binary(*power, BinaryKind::Pow)
            .is_some_and(|[base, exponent]| base == x && pattern.is(exponent, 3.)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::Value;
    use crate::passes::tests::{f32_type, graph_of};
    use lgp_memory::Tensor;

    fn constant(g: &mut GraphBuilder, name: &str, x: f32) -> Value {
        g.initializer(name, Tensor::scalar(x).unwrap())
    }

    /// Whether a graph whose last node makes y ends in a GELU.
    fn ends_in(g: GraphBuilder) -> Result<Option<bool>> {
        let mut graph = graph_of(g)?;
        graph.infer()?;
        GeluFusion.run(&mut graph)?;
        let last = graph.nodes.len() - 1;
        Ok(match graph.op::<Unary>(last).map(|op| op.kind) {
            Some(UnaryKind::Gelu { tanh }) => Some(tanh),
            _ => None,
        })
    }

    #[test]
    fn by_the_error_function_in_every_order() -> Result<()> {
        for (order, half) in [(0, 0.5), (1, 0.5), (2, 0.5), (0, 0.4)] {
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", f32_type(&[None, Some(4)]));
            // The input of the GELU is a product too.
            let x = g.node("Mul", &[x, x], []);
            let root = constant(&mut g, "root", std::f32::consts::SQRT_2);
            let one = constant(&mut g, "one", 1.);
            let half_value = constant(&mut g, "half", half);
            let scaled = g.node("Div", &[x, root], []);
            let erf = g.node("Erf", &[scaled], []);
            let cdf = g.node("Add", &[erf, one], []);
            let y = match order {
                0 => {
                    let product = g.node("Mul", &[x, cdf], []);
                    g.node("Mul", &[product, half_value], [])
                }
                1 => {
                    let product = g.node("Mul", &[x, half_value], []);
                    g.node("Mul", &[cdf, product], [])
                }
                _ => {
                    let product = g.node("Mul", &[half_value, cdf], []);
                    g.node("Mul", &[product, x], [])
                }
            };
            g.output("y", y, f32_type(&[None, Some(4)]));
            assert_eq!(ends_in(g)?, (half == 0.5).then_some(false), "{order}");
        }
        Ok(())
    }

    #[test]
    fn by_tanh() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(4)]));
        let three = constant(&mut g, "three", 3.);
        let small = constant(&mut g, "small", 0.044_715);
        let root = constant(&mut g, "root", 0.797_884_6);
        let one = constant(&mut g, "one", 1.);
        let half = constant(&mut g, "half", 0.5);
        let power = g.node("Pow", &[x, three], []);
        let cubic = g.node("Mul", &[small, power], []);
        let sum = g.node("Add", &[x, cubic], []);
        let inner = g.node("Mul", &[root, sum], []);
        let tanh = g.node("Tanh", &[inner], []);
        let cdf = g.node("Add", &[one, tanh], []);
        let halved = g.node("Mul", &[half, x], []);
        let y = g.node("Mul", &[halved, cdf], []);
        g.output("y", y, f32_type(&[None, Some(4)]));
        assert_eq!(ends_in(g)?, Some(true));
        Ok(())
    }
}
