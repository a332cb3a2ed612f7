//! Quantisation with a scale that follows from the values, on devices.

use crate::device::{Argument, Call, Kernel, Launches, groups};
use crate::op::ValueInfo;

const GROUP: usize = 256;
/// Work-groups that keep a card busy; each walks over its part.
const GROUPS_MAX: usize = 144;

pub(super) fn launches(inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let [Some(x)] = inputs else { return None };
    let count = x.ty.concrete_shape()?.elements().ok()?;
    let parts = groups(count, GROUP).min(GROUPS_MAX);
    let number = |n: usize| Some(Argument::U32(u32::try_from(n).ok()?));
    let (x, bounds) = (Argument::Input(0), Argument::Scratch(0));
    let [y, scale, zero] = [0, 1, 2].map(Argument::Output);
    let call = |name, groups: usize, arguments: Vec<Argument>, bytes: usize| {
        let body = include_str!("dynamic_quantize_linear.cl");
        let kernel = Kernel::new(name, body, [GROUP, 1, 1]);
        let (flops, bytes) = (count as u64, bytes as u64);
        Call { kernel, groups: [groups, 1, 1], arguments, flops, bytes }
    };
    let calls = vec![
        call("find_bounds", parts, vec![x, bounds, number(count)?], 4 * count),
        call("find_scale", 1, vec![bounds, scale, zero, number(parts)?], 8 * parts),
        call("quantize", parts, vec![x, scale, zero, y, number(count)?], 5 * count),
    ];
    Some(Launches { calls, scratch: vec![8 * parts], ..Launches::default() })
}
