//! Normalisation.

use crate::graph::ValueId;
use crate::onnx::dtype;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{
    BatchNorm, Binary, BinaryKind, Cast, GroupNorm, Identity, InstanceNorm, LayerNorm,
    LayerNormStats, Lrn, Reduce, ReduceKind, Reshape, RmsNorm, Unary, UnaryKind, Where,
};
use lgp_memory::DType;

const EPSILON: f32 = 1e-5;

pub(crate) fn batch_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // `consumed_inputs` told opset 1 what may be overwritten.
    cx.ignore(&["consumed_inputs"]);
    let epsilon = cx.float("epsilon")?.unwrap_or(EPSILON);
    let momentum = cx.float("momentum")?.unwrap_or(0.9);
    // Opset 9 removed statistics per activation.
    let spatial = cx.flag("spatial")?.unwrap_or(true);
    // A flag tells training from inference. Opsets 7 to 13 have none, and older files may lack it:
    // there, only training declares further outputs.
    let training = match (cx.flag("training_mode")?, cx.flag("is_test")?) {
        (Some(training), _) => training,
        (None, Some(test)) => !test,
        (None, None) => cx.opset < 14 && cx.declares_outputs_from(1),
    };
    let statistics = if training {
        batch_statistics(cx, spatial, momentum)?
    } else {
        cx.at_most_outputs(1)?;
        [cx.input(3), cx.input(4)]
    };
    let [mean, variance] = statistics;
    let y = cx.output(0);
    if spatial {
        let inputs = vec![cx.input(0), cx.input(1), cx.input(2), mean, variance];
        cx.emit_into(BatchNorm { epsilon }, inputs, vec![y]);
        return Ok(());
    }
    let centred = cx.emit(Binary::new(BinaryKind::Sub), vec![cx.input(0), mean]);
    let shifted = UnaryKind::Linear { scale: 1., shift: epsilon };
    let shifted = cx.emit(Unary::new(shifted), vec![variance]);
    let deviation = cx.emit(Unary::new(UnaryKind::Sqrt), vec![Some(shifted)]);
    let normed = cx.emit(Binary::new(BinaryKind::Div), vec![Some(centred), Some(deviation)]);
    let scaled = cx.emit(Binary::new(BinaryKind::Mul), vec![Some(normed), cx.input(1)]);
    cx.emit_into(Binary::new(BinaryKind::Add), vec![Some(scaled), cx.input(2)], vec![y]);
    Ok(())
}

/// Mean and variance of the batch. The second and third output are the running ones; the last two
/// are those of the batch, which training saved.
fn batch_statistics(
    cx: &mut NodeCx<'_>,
    spatial: bool,
    momentum: f32,
) -> Result<[Option<ValueId>; 2], Refusal> {
    let (x, axes) = if spatial {
        let shape = cx.emit_ints(&[0, 0, -1])?;
        let planes = cx.emit(Reshape::default(), vec![cx.input(0), Some(shape)]);
        (Some(planes), vec![0, 2])
    } else {
        (cx.input(0), vec![0])
    };
    let average =
        |keep_dims| Reduce { keep_dims, ..Reduce::new(ReduceKind::Mean, Some(axes.clone())) };
    let kept = cx.emit(average(true), vec![x]);
    let mean = cx.emit(average(false), vec![x]);
    let centred = cx.emit(Binary::new(BinaryKind::Sub), vec![x, Some(kept)]);
    let squares = cx.emit(Binary::new(BinaryKind::Mul), vec![Some(centred), Some(centred)]);
    let variance = cx.emit(average(false), vec![Some(squares)]);
    let keep = UnaryKind::Linear { scale: momentum, shift: 0. };
    let take = UnaryKind::Linear { scale: 1. - momentum, shift: 0. };
    for (i, now) in [(1, mean), (2, variance)] {
        if let Some(output) = cx.output(i) {
            let old = cx.emit(Unary::new(keep), vec![cx.input(i + 2)]);
            let new = cx.emit(Unary::new(take), vec![Some(now)]);
            cx.emit_into(
                Binary::new(BinaryKind::Add),
                vec![Some(old), Some(new)],
                vec![Some(output)],
            );
        }
        if let Some(saved) = cx.output(i + 2) {
            cx.emit_into(Identity, vec![Some(now)], vec![Some(saved)]);
        }
    }
    Ok([Some(mean), Some(variance)])
}

pub(crate) fn instance_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // `consumed_inputs` told opset 1 what may be overwritten.
    cx.ignore(&["consumed_inputs"]);
    let epsilon = cx.float("epsilon")?.unwrap_or(EPSILON);
    cx.map(InstanceNorm { epsilon })
}

pub(crate) fn layer_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?.unwrap_or(-1);
    let epsilon = cx.float("epsilon")?.unwrap_or(EPSILON);
    // The precision of the statistics, which are never computed below f32 here.
    let stash = cx.int("stash_type")?.unwrap_or(1);
    if cx.output(1).is_some() || cx.output(2).is_some() {
        let to = dtype::from_onnx(stash)
            .map_err(|given| format!("attribute 'stash_type' is {given}, expected a float"))?;
        let x = cx.emit(Cast { to }, vec![cx.input(0)]);
        let outputs = vec![cx.output(1), cx.output(2)];
        cx.emit_into(LayerNormStats { axis, epsilon }, vec![Some(x)], outputs);
    }
    if let Some(y) = cx.output(0) {
        cx.emit_into(LayerNorm { axis, epsilon }, cx.inputs.clone(), vec![Some(y)]);
    }
    Ok(())
}

pub(crate) fn rms_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    // As for layer normalisation.
    cx.ignore(&["stash_type"]);
    let op = RmsNorm {
        axis: cx.int("axis")?.unwrap_or(-1),
        epsilon: cx.float("epsilon")?.unwrap_or(EPSILON),
    };
    cx.map(op)
}

/// `x / norm`; a vector of zeros stays zero.
pub(crate) fn lp_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis")?.unwrap_or(-1);
    let kind = match cx.int("p")?.unwrap_or(2) {
        1 => ReduceKind::L1,
        2 => ReduceKind::L2,
        p => return Err(format!("attribute 'p' is {p}, expected 1 or 2")),
    };
    let x = cx.input(0);
    let norm = Some(cx.emit(Reduce::new(kind, Some(vec![axis])), vec![x]));
    let some = cx.emit(Cast { to: DType::Bool }, vec![norm]);
    let quotient = cx.emit(Binary::new(BinaryKind::Div), vec![x, norm]);
    cx.map_with(Where, vec![Some(some), Some(quotient), x])
}

pub(crate) fn mean_variance_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let axes = cx.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let average = || Reduce::new(ReduceKind::Mean, Some(axes.clone()));
    let x = cx.input(0);
    let mean = cx.emit(average(), vec![x]);
    let centred = Some(cx.emit(Binary::new(BinaryKind::Sub), vec![x, Some(mean)]));
    let squares = cx.emit(Binary::new(BinaryKind::Mul), vec![centred, centred]);
    let variance = cx.emit(average(), vec![Some(squares)]);
    let deviation = cx.emit(Unary::new(UnaryKind::Sqrt), vec![Some(variance)]);
    // ONNX's definition adds 1e-9 to the deviation.
    let shift = UnaryKind::Linear { scale: 1., shift: 1e-9 };
    let deviation = cx.emit(Unary::new(shift), vec![Some(deviation)]);
    cx.map_with(Binary::new(BinaryKind::Div), vec![centred, Some(deviation)])
}

pub(crate) fn group_norm(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.ignore(&["stash_type"]);
    let Some(groups) = cx.size("num_groups")? else {
        return Err("attribute 'num_groups' is missing".into());
    };
    let epsilon = cx.float("epsilon")?.unwrap_or(EPSILON);
    cx.map(GroupNorm { groups, epsilon })
}

pub(crate) fn lrn(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let Some(size) = cx.size("size")? else {
        return Err("attribute 'size' is missing".into());
    };
    let op = Lrn {
        alpha: cx.float("alpha")?.unwrap_or(1e-4),
        beta: cx.float("beta")?.unwrap_or(0.75),
        bias: cx.float("bias")?.unwrap_or(1.),
        size,
    };
    cx.map(op)
}
