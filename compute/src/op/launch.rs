//! Runs on tensors that may hold strings.

use super::{Context, Op};
use crate::error::{Result, wrong_kind};
use lgp_memory::{DType, Datum, StringTable, Tensor, TensorView};

/// Runs an operator on tensors that may hold strings.
///
/// A kernel sees the elements of a string tensor as numbers. This function gives the inputs one
/// table, in which numbers order as texts do. Outputs that moved those numbers get the same table.
///
/// # Errors
/// As [`Op::run`].
pub fn launch<O: Op + ?Sized>(
    op: &O,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let is_text = |x: &TensorView<'_>| x.dtype() == DType::Str;
    if !inputs.iter().flatten().any(is_text) {
        return op.run(ctx, inputs);
    }
    let tables = || inputs.iter().flatten().filter_map(TensorView::string_table);
    let table = StringTable::merged(tables());
    // A zero-filled string tensor has no table, and its numbers would be texts in another's table.
    let shares = |x: &TensorView<'_>| x.string_table().is_some_and(|t| t.is(&table));
    let outputs = if inputs.iter().flatten().filter(|x| is_text(x)).all(shares) {
        op.run(ctx, inputs)?
    } else {
        let own = |x: &TensorView<'_>| x.to_tensor()?.with_table(&table);
        let mut renumbered: Vec<Option<Tensor>> = Vec::with_capacity(inputs.len());
        for input in inputs {
            renumbered.push(input.as_ref().filter(|x| is_text(x)).map(own).transpose()?);
        }
        let views: Vec<Option<TensorView<'_>>> = inputs
            .iter()
            .zip(&renumbered)
            .map(|(given, own)| own.as_ref().map(Tensor::view).or_else(|| given.clone()))
            .collect();
        op.run(ctx, &views)?
    };
    Ok(outputs.into_iter().map(|out| out.or_table(&table)).collect())
}

/// [`launch`] on values of any kind; values other than tensors are an error.
pub(super) fn launch_data<O: Op + ?Sized>(
    op: &O,
    ctx: &Context,
    inputs: &[Option<Datum>],
) -> Result<Vec<Datum>> {
    let mut views = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate() {
        views.push(match input {
            None => None,
            Some(Datum::Tensor(tensor)) => Some(tensor.view()),
            Some(other) => return Err(wrong_kind(i, other.kind(), "a tensor")),
        });
    }
    Ok(launch(op, ctx, &views)?.into_iter().map(Datum::Tensor).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_counted_and_errors_name_the_operator() {
        let (concat, ctx) = (crate::ops::Concat { axis: 0 }, Context::new(1));
        let none = "Concat: 0 inputs given, expected at least 1";
        assert_eq!(concat.run(&ctx, &[]).unwrap_err().to_string(), none);
        assert_eq!(concat.infer(&[]).unwrap_err().to_string(), none);
        assert_eq!(concat.run_data(&ctx, Vec::new()).unwrap_err().to_string(), none);
        let missing = concat.run(&ctx, &[None]).unwrap_err().to_string();
        assert_eq!(missing, "Concat: input 0 is missing");
    }

    #[test]
    fn strings_move_and_compare_like_numbers() {
        let ctx = Context::new(1);
        let a = Tensor::from_strings([2], &["b", "a"]).unwrap();
        let b = Tensor::from_strings([1], &["a"]).unwrap();
        let inputs = [Some(a.view()), Some(b.view())];
        let out = launch(&crate::ops::Concat { axis: 0 }, &ctx, &inputs).unwrap();
        assert_eq!(out[0].strings().unwrap(), ["b", "a", "a"]);
        let equal = crate::ops::Binary::new(crate::ops::BinaryKind::Equal);
        let out = launch(&equal, &ctx, &inputs).unwrap();
        assert_eq!(out[0].as_slice::<bool>().unwrap(), [false, true]);
        let data = vec![Some(Datum::Sequence(vec![])), None];
        let error = equal.run_data(&ctx, data).unwrap_err().to_string();
        assert_eq!(error, "Equal: input 0 is a sequence, expected a tensor");
    }
}
