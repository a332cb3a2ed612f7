//! Convolutions.

use super::{Case, cast, noise};
use lgp_compute::ValueInfo;
use lgp_compute::ops::{Conv, ConvTranspose, Pads};
use lgp_compute::rewrite::{Hints, Operand};
use lgp_memory::DType;

pub(super) fn cases() -> Vec<Case> {
    let all = [convolutions(), scheduled(), first_layers(), transposed(), halves()];
    all.into_iter().flatten().collect()
}

/// A convolution: the shapes of input and weight, groups, strides, dilations and pads, and the seed
/// of its numbers. A convolution with an odd seed has a bias.
type Window<'a> = (&'a [usize], &'a [usize], usize, &'a [usize], &'a [usize], &'a [usize]);

fn convolution((x, weight, group, strides, dilations, pads): Window<'_>, bias: bool) -> Case {
    let op = Conv {
        strides: strides.to_vec(),
        pads: Pads::Explicit(pads.to_vec()),
        dilations: dilations.to_vec(),
        group,
    };
    let mut inputs = vec![noise(x, 1), noise(weight, 2)];
    if bias {
        inputs.push(noise(&weight[..1], 3));
    }
    let name = format!("Conv {x:?} {weight:?} {group} {strides:?} {dilations:?} {pads:?} {bias}");
    Case::new(name, op, inputs).within(1e-4)
}

fn convolutions() -> Vec<Case> {
    let windows: &[Window<'_>] = &[
        // One tap.
        (&[1, 16, 7, 9], &[8, 16, 1, 1], 1, &[], &[], &[]),
        (&[3, 5, 7, 9], &[70, 5, 1, 1], 1, &[], &[], &[]),
        (&[2, 33, 12, 12], &[130, 33, 1, 1], 1, &[2, 2], &[], &[]),
        (&[2, 20, 5, 4], &[4, 20, 1, 1], 1, &[], &[], &[1, 0, 2, 1]),
        // Nine taps, with even and odd numbers of channels, padded, strided and dilated.
        (&[1, 3, 8, 8], &[4, 3, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
        (&[2, 16, 13, 17], &[20, 16, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
        (&[2, 6, 13, 10], &[65, 6, 3, 3], 1, &[2, 2], &[], &[1, 0, 0, 1]),
        (&[1, 4, 15, 14], &[7, 4, 3, 3], 1, &[1, 2], &[3, 2], &[2, 0, 3, 1]),
        (&[2, 64, 40, 40], &[64, 64, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
        // Windows that are unfolded to a matrix.
        (&[2, 3, 30, 29], &[16, 3, 7, 7], 1, &[2, 2], &[], &[3, 3, 3, 3]),
        (&[1, 2, 9, 9], &[5, 2, 5, 5], 1, &[], &[], &[2, 2, 2, 2]),
        (&[1, 2, 6, 40], &[3, 2, 1, 33], 1, &[], &[], &[0, 40, 0, 3]),
        // Enough channels and places for Winograd's algorithm.
        (&[1, 66, 51, 42], &[70, 66, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
        (&[3, 128, 32, 33], &[80, 64, 3, 3], 2, &[], &[], &[0, 1, 2, 0]),
        // For the largest tiles.
        (&[1, 7, 96, 95], &[768, 7, 1, 1], 1, &[], &[], &[]),
        // Few places, so that work-groups share the channels.
        (&[1, 250, 5, 5], &[33, 250, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
        (&[2, 512, 3, 3], &[40, 256, 1, 1], 2, &[], &[], &[]),
        // Groups.
        (&[2, 8, 9, 9], &[12, 4, 3, 3], 2, &[], &[], &[1, 1, 1, 1]),
        (&[1, 12, 5, 6], &[9, 4, 1, 1], 3, &[], &[], &[]),
        // Groups of one channel.
        (&[2, 5, 11, 13], &[5, 1, 3, 3], 5, &[], &[], &[1, 1, 1, 1]),
        (&[2, 4, 11, 13], &[8, 1, 3, 3], 4, &[2, 2], &[], &[1, 1, 0, 0]),
        (&[1, 3, 14, 14], &[3, 1, 5, 5], 3, &[1, 1], &[2, 3], &[4, 4, 4, 4]),
        (&[1, 2, 9, 9], &[2, 1, 7, 7], 2, &[3, 1], &[], &[3, 3, 3, 3]),
        (&[1, 2, 20, 20], &[2, 1, 9, 9], 2, &[2, 1], &[2, 1], &[3, 3, 3, 3]),
        (&[1, 1, 6, 6], &[3, 1, 3, 3], 1, &[], &[], &[]),
        // One and three spatial axes.
        (&[2, 6, 31], &[5, 6, 3], 1, &[2], &[2], &[1, 2]),
        (&[2, 6, 31], &[6, 1, 4], 6, &[], &[], &[3, 0]),
        (&[1, 4, 5, 6, 7], &[6, 4, 3, 3, 3], 1, &[1, 2, 1], &[], &[1, 1, 1, 1, 1, 1]),
        (&[2, 3, 5, 6, 7], &[3, 1, 3, 2, 3], 3, &[2, 1, 1], &[1, 2, 1], &[1, 0, 1, 0, 1, 1]),
    ];
    let case = |(i, window): (usize, &Window<'_>)| convolution(*window, i % 2 == 0);
    windows.iter().enumerate().map(case).collect()
}

/// Convolutions with several schedules: of one tap, whose images are multiplied as they lie, and of
/// nine with Winograd's algorithm among them, also with a weight that is transformed beforehand.
fn scheduled() -> Vec<Case> {
    let pointwise = |x: &[usize], maps: usize, bias| {
        convolution((x, &[maps, x[1], 1, 1], 1, &[], &[], &[]), bias)
    };
    let nine: Window<'_> = (&[1, 66, 51, 42], &[70, 66, 3, 3], 1, &[], &[], &[1, 1, 1, 1]);
    vec![
        pointwise(&[2, 16, 6, 10], 70, true).in_every_way(),
        pointwise(&[1, 9, 6, 6], 33, false).in_every_way(),
        pointwise(&[3, 300, 2, 2], 5, true).finished(),
        convolution((&[1, 6, 9, 10], &[37, 6, 3, 3], 1, &[], &[], &[1, 1, 1, 1]), true)
            .in_every_way(),
        transformed(nine, true),
        transformed(nine, false).finished(),
    ]
}

/// The operator that a convolution with a constant weight becomes on a device.
fn transformed(window: Window<'_>, bias: bool) -> Case {
    let case = convolution(window, bias).constant(&[1]);
    let infos = case.infos(&case.inputs);
    let mut infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
    infos.resize(3, None);
    let hints = Hints { on_device: true, ..Hints::default() };
    let step = case.op.prepared(&infos, hints).expect("it is f32").expect("it gains");
    let input = |operand| match operand {
        Operand::Input(i) => case.inputs[i].clone(),
        Operand::Constant(tensor) => Some(tensor),
        _ => None,
    };
    let inputs = step.inputs.into_iter().map(input).collect();
    let (name, op) = (format!("{}, transformed", case.name), step.op.expect("another one"));
    Case { name, op, inputs, ..case }
}

/// Few input channels, which may be convolved directly. The widths are not multiples of most
/// strips.
fn first_layers() -> Vec<Case> {
    let windows: &[Window<'_>] = &[
        (&[1, 3, 9, 9], &[8, 3, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
        (&[2, 3, 12, 13], &[17, 3, 3, 3], 1, &[2, 2], &[], &[0, 0, 1, 1]),
        (&[1, 3, 30, 31], &[12, 3, 7, 7], 1, &[2, 2], &[], &[3, 3, 3, 3]),
        (&[1, 1, 10, 11], &[9, 1, 5, 5], 1, &[], &[], &[2, 2, 2, 2]),
        (&[2, 1, 12, 7], &[8, 1, 3, 3], 1, &[1, 2], &[2, 3], &[2, 0, 4, 5]),
        (&[1, 4, 15, 14], &[10, 4, 3, 3], 1, &[2, 1], &[3, 2], &[2, 0, 3, 1]),
        (&[1, 2, 6, 29], &[8, 2, 1, 4], 1, &[1, 9], &[1, 3], &[0, 5, 0, 2]),
        (&[2, 2, 7, 5], &[8, 2, 1, 1], 1, &[3, 2], &[], &[]),
        (&[1, 3, 21], &[11, 3, 7], 1, &[2], &[], &[3, 3]),
        // Large enough that the direct kernel is chosen without measurements.
        (&[1, 3, 192, 193], &[20, 3, 3, 3], 1, &[2, 2], &[], &[1, 1, 1, 1]),
        (&[1, 1, 96, 97], &[12, 1, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
    ];
    let case = |(i, window): (usize, &Window<'_>)| convolution(*window, i % 2 == 0);
    let mut cases: Vec<Case> = windows.iter().enumerate().map(case).collect();
    let finished = |window: &Window<'_>| convolution(*window, true).finished();
    cases.extend(windows[..5].iter().map(finished));
    for dtype in [DType::F16, DType::BF16] {
        for (channels, bias) in [(1, true), (3, false)] {
            let op = Conv { strides: vec![2, 2], pads: Pads::SameUpper, ..Conv::default() };
            let mut inputs = vec![noise(&[2, channels, 11, 9], 1), noise(&[9, channels, 3, 3], 2)];
            inputs.extend(bias.then(|| noise(&[9], 3)));
            let inputs = inputs.iter().map(|x| cast(x, dtype)).collect();
            let case = Case::new(format!("Conv {dtype}, {channels} channels"), op, inputs);
            cases.push(case.within(2e-2));
        }
    }
    cases
}

fn halves() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::BF16] {
        for (channels, group) in [(4, 1), (4, 4), (200, 1)] {
            let op = Conv { pads: Pads::SameUpper, group, ..Conv::default() };
            let weight = noise(&[8, channels / group, 3, 3], 2);
            let inputs = [noise(&[2, channels, 7, 7], 1), weight, noise(&[8], 3)];
            let inputs = inputs.iter().map(|x| cast(x, dtype)).collect();
            let name = format!("Conv {dtype} {channels} {group}");
            cases.push(Case::new(name, op, inputs).within(2e-2));
        }
    }
    cases
}

fn transposed() -> Vec<Case> {
    let mut cases = Vec::new();
    for (x, weight, group, strides, dilations, pads, output_padding) in [
        (&[1, 3, 4, 5][..], &[3, 4, 3, 3][..], 1, &[][..], &[][..], &[][..], &[][..]),
        (&[2, 6, 7, 5], &[6, 4, 2, 2], 1, &[2, 2], &[], &[], &[]),
        (&[2, 18, 6, 6], &[18, 5, 4, 4], 1, &[2, 2], &[], &[1, 1, 1, 1], &[]),
        (&[1, 4, 6, 5], &[4, 3, 3, 3], 2, &[2, 3], &[], &[1, 0, 0, 1], &[1, 2]),
        (&[1, 2, 6, 5], &[2, 3, 3, 2], 1, &[2, 4], &[2, 3], &[2, 1, 1, 0], &[]),
        // No tap reaches some of the outputs.
        (&[1, 2, 4, 4], &[2, 2, 1, 2], 1, &[3, 4], &[1, 2], &[], &[]),
        (&[2, 3, 9], &[3, 1, 5], 3, &[3], &[], &[1, 2], &[]),
        (&[1, 2, 3, 4, 3], &[2, 2, 2, 3, 2], 1, &[2, 1, 2], &[], &[0, 1, 0, 0, 1, 1], &[]),
        (&[1, 300, 4, 4], &[300, 8, 4, 4], 1, &[2, 2], &[], &[1, 1, 1, 1], &[]),
    ] {
        let op = ConvTranspose {
            strides: strides.to_vec(),
            pads: Pads::Explicit(pads.to_vec()),
            dilations: dilations.to_vec(),
            group,
            output_padding: output_padding.to_vec(),
            output_shape: None,
        };
        let inputs = vec![noise(x, 1), noise(weight, 2), noise(&[weight[1] * group], 3)];
        let name = format!("ConvTranspose {x:?} {weight:?} {strides:?} {dilations:?} {pads:?}");
        cases.push(Case::new(name, op, inputs).within(1e-4));
    }
    cases
}
