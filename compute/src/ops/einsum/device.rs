//! Einsum on devices: of one input that is rearranged, or of two as a batched product of matrices.

use super::Einsum;
use super::equation::{Equation, Label};
use crate::device::{Argument, Factor, Launches, Product, moves, viewed};
use crate::op::ValueInfo;
use lgp_memory::{DType, Layout, Shape};

/// An input or the output, whose axes have distinct names.
struct Term<'a> {
    argument: Argument,
    labels: &'a [Label],
    dims: Vec<usize>,
}

pub(super) fn launches(
    op: &Einsum,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let [output] = outputs else { return None };
    let dtype = output.ty.dtype;
    let shape = |info: &ValueInfo| Some(info.ty.concrete_shape()?.to_vec());
    let given: Vec<Vec<usize>> = inputs.iter().map(|x| shape((*x)?)).collect::<Option<_>>()?;
    let ranks: Vec<usize> = given.iter().map(Vec::len).collect();
    let equation = Equation::parse(&op.equation, &ranks).ok()?;
    let terms = equation.inputs.iter().zip(given).enumerate();
    let terms: Vec<Term<'_>> = terms
        .map(|(i, (labels, dims))| Term { argument: Argument::Input(i), labels, dims })
        .collect();
    let dims = shape(output)?;
    let y = Term { argument: Argument::Output(0), labels: &equation.output, dims };
    let plain = |term: &Term<'_>| term.is_plain(&terms) && !term.dims.contains(&0);
    if !terms.iter().chain([&y]).all(plain) {
        return None;
    }
    match terms.as_slice() {
        [x] if x.labels.len() == y.labels.len() => viewed(&x.arranged(y.labels)?, output),
        [a, b] if matches!(dtype, DType::F32 | DType::F16 | DType::BF16) => {
            product(dtype, a, b, &y)
        }
        _ => None,
    }
}

/// `y = a · b`, summed over the axes that y lacks, which both must have.
fn product(dtype: DType, a: &Term<'_>, b: &Term<'_>, y: &Term<'_>) -> Option<Launches> {
    let of = |term: &Term<'_>, keep: &dyn Fn(&Label) -> bool| -> Vec<Label> {
        term.labels.iter().copied().filter(|label| keep(label)).collect()
    };
    let batch = of(a, &|label| b.has(label) && y.has(label));
    let inner = of(a, &|label| b.has(label) && !y.has(label));
    let rows = of(a, &|label| !b.has(label));
    let columns = of(b, &|label| !a.has(label));
    if rows.iter().chain(&columns).any(|label| !y.has(label)) {
        return None;
    }
    let size = |labels: &[Label]| -> Option<usize> {
        let each = labels.iter().map(|label| a.size(*label).or_else(|| b.size(*label)));
        each.collect::<Option<Vec<_>>>()?.into_iter().try_fold(1usize, usize::checked_mul)
    };
    let batches = [size(&batch)?];
    let mut launches = Launches::default();
    let mut factor = |term: &Term<'_>, sides: &[Label]| -> Option<Factor> {
        let along = [&batch[..], sides, &inner].concat();
        let across = [&batch[..], &inner, sides].concat();
        let is_across = term.labels == across;
        if is_across || term.labels == along {
            return Some(Factor::plain(term.argument, dtype, !is_across));
        }
        let moved = Argument::Scratch(launches.scratch.len());
        let view = term.arranged(&along)?;
        let to = Layout::contiguous(&Shape::from(view.dims())).ok()?;
        launches.scratch.push(view.dims().iter().product::<usize>() * dtype.size());
        launches.calls.push(moves(dtype, (term.argument, &view), (moved, &to))?);
        Some(Factor::plain(moved, dtype, true))
    };
    let operands = [factor(a, &rows)?, factor(b, &columns)?];
    let natural = [&batch[..], &rows, &columns].concat();
    let direct = y.labels == natural;
    let target = if direct { y.argument } else { Argument::Scratch(launches.scratch.len()) };
    if !direct {
        launches.scratch.push(y.dims.iter().product::<usize>() * dtype.size());
    }
    let product = Product {
        sizes: [size(&rows)?, size(&columns)?, size(&inner)?],
        operands,
        batches: [&batches; 3],
        alpha: 1.,
        addend: None,
        y: (target, dtype),
    };
    product.add_to(&mut launches)?;
    if !direct {
        let to = y.arranged(&natural)?;
        let from = Layout::contiguous(&Shape::from(to.dims())).ok()?;
        launches.calls.push(moves(dtype, (target, &from), (y.argument, &to))?);
    }
    Some(launches)
}

impl Term<'_> {
    fn has(&self, label: &Label) -> bool {
        self.labels.contains(label)
    }

    fn size(&self, label: Label) -> Option<usize> {
        let at = self.labels.iter().position(|own| *own == label)?;
        self.dims.get(at).copied()
    }

    /// Whether each name occurs once, and `others` have the same size for it.
    fn is_plain(&self, others: &[Term<'_>]) -> bool {
        self.labels.iter().enumerate().all(|(i, label)| {
            let own = self.dims.get(i).copied();
            let same = others.iter().filter(|x| x.has(label)).all(|x| x.size(*label) == own);
            same && !self.labels[..i].contains(label)
        })
    }

    /// The term's elements with the axes in another order.
    fn arranged(&self, order: &[Label]) -> Option<Layout> {
        let at = |label: &Label| self.labels.iter().position(|own| own == label);
        let perm = order.iter().map(at).collect::<Option<Vec<usize>>>()?;
        let whole = Layout::contiguous(&Shape::from(self.dims.as_slice())).ok()?;
        whole.permuted(&perm).ok()
    }
}
