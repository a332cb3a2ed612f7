//! Whether a kernel fits a device, and a launch a kernel: the pure parts.

use crate::backend::vulkan::info::name_of;
use crate::backend::vulkan::slot::DESCRIPTORS;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use crate::program::{Arg, Launch};
use ash::vk;
use lgp_portable::{Need, Parameter, Scalar};

/// The size of a work-group if neither kernel nor caller gives one: enough to hide latencies.
const GROUP: usize = 256;

/// Refuses a kernel that the device cannot run.
pub(super) fn refuse_unfit(
    device: DeviceId,
    has: &[Need],
    limits: &vk::PhysicalDeviceLimits,
    code: &lgp_portable::Kernel,
) -> Result<()> {
    let name = &code.name;
    if let Some(need) = code.needs.iter().find(|need| !has.contains(need)) {
        let reason = format!("the kernel {name:?} needs it");
        return Err(Error::Unsupported { device, what: name_of(*need), reason });
    }
    let buffers = code.parameters.iter().filter(|it| matches!(it, Parameter::Buffer { .. }));
    let buffers = u32::try_from(buffers.count()).unwrap_or(u32::MAX);
    let buffers_max = limits
        .max_per_stage_descriptor_storage_buffers
        .min(limits.max_descriptor_set_storage_buffers)
        .min(limits.max_per_stage_resources)
        .min(DESCRIPTORS);
    let [x, y, z] = code.group.unwrap_or([1; 3]);
    let items = x.saturating_mul(y).saturating_mul(z);
    let [x_max, y_max, z_max] = limits.max_compute_work_group_size;
    for (what, needed, most) in [
        ("room for the scalars", code.scalar_bytes, limits.max_push_constants_size),
        ("room for the local memory", code.local_bytes, limits.max_compute_shared_memory_size),
        ("room for the buffers", buffers, buffers_max),
        ("work-groups of the size", items, limits.max_compute_work_group_invocations),
        ("work-groups of the width", x, x_max),
        ("work-groups of the height", y, y_max),
        ("work-groups of the depth", z, z_max),
    ] {
        if needed > most {
            let reason = format!("the kernel {name:?} needs {needed}, the device has {most}");
            return Err(Error::Unsupported { device, what, reason });
        }
    }
    Ok(())
}

/// Refuses work-groups that do not divide the launch's grid.
pub(super) fn launch_divides(launch: &Launch<'_>, group: [usize; 3]) -> Result<()> {
    let global = launch.global;
    match group.iter().zip(global).all(|(&side, global)| side > 0 && global.is_multiple_of(side)) {
        true => Ok(()),
        false => {
            let reason = format!("work-groups of {group:?} do not divide the grid {global:?}");
            Err(launch.refusal(reason))
        }
    }
}

/// The sides of work-groups that divide a grid: as many work-items as allowed, in the first
/// dimensions first.
pub(super) fn choose(global: [usize; 3], most: usize, sides: [usize; 3]) -> [usize; 3] {
    let mut left = most.min(GROUP);
    [0, 1, 2].map(|axis| {
        let most = left.min(sides[axis]).max(1);
        let side = (1..=most).rev().find(|side| global[axis].is_multiple_of(*side)).unwrap_or(1);
        left /= side;
        side
    })
}

/// Writes a scalar; fails if it has another type than the parameter. Integers of one size are one
/// type, because their bits are the same.
pub(super) fn pack(arg: &Arg<'_>, ty: Scalar, place: &mut [u8]) -> bool {
    let bytes: &[u8] = match (arg, ty) {
        (Arg::U32(value), Scalar::U32 | Scalar::I32) => &value.to_ne_bytes(),
        (Arg::I32(value), Scalar::U32 | Scalar::I32) => &value.to_ne_bytes(),
        (Arg::U64(value), Scalar::U64 | Scalar::I64) => &value.to_ne_bytes(),
        (Arg::F32(value), Scalar::F32) => &value.to_ne_bytes(),
        _ => return false,
    };
    match place.get_mut(..bytes.len()) {
        Some(place) => place.copy_from_slice(bytes),
        None => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendKind;

    #[test]
    fn kernels_beyond_a_limit_are_refused_before_the_driver_sees_them() {
        let device = DeviceId::new(BackendKind::Vulkan, 0);
        let limits = vk::PhysicalDeviceLimits {
            max_per_stage_descriptor_storage_buffers: 1_000_000,
            max_descriptor_set_storage_buffers: 1_000_000,
            max_per_stage_resources: 1_000_000,
            max_push_constants_size: 128,
            max_compute_work_group_invocations: 512,
            max_compute_work_group_size: [512, 128, 64],
            max_compute_shared_memory_size: 1 << 15,
            ..Default::default()
        };
        let pointers =
            |count: u32| (0..count).map(|at| format!("GLOBAL u32 *p{at}")).collect::<Vec<_>>();
        let buffers = |count| format!("KERNEL void k({}) {{}}", pointers(count).join(", "));
        let sides = |sides| format!("KERNEL GROUP_SIZE({sides}) void k(GLOBAL u32 *y) {{}}");
        for (source, expected) in [
            (buffers(DESCRIPTORS), None),
            (buffers(DESCRIPTORS + 1), Some("room for the buffers")),
            (sides("256, 1, 1"), None),
            (sides("1, 128, 1"), None),
            (sides("1, 256, 1"), Some("work-groups of the height")),
            (sides("1, 1, 64"), None),
            (sides("1, 1, 256"), Some("work-groups of the depth")),
        ] {
            let code = &lgp_portable::compile(&source, "").expect("it is the language")[0];
            let told = refuse_unfit(device, &[Need::FloatControls], &limits, code);
            let what = told.map_or_else(
                |error| match error {
                    Error::Unsupported { what, .. } => Some(what),
                    other => panic!("{other}"),
                },
                |()| None,
            );
            assert_eq!(what, expected, "{source}");
        }
        let code = &lgp_portable::compile(&buffers(1), "").expect("it is the language")[0];
        assert!(refuse_unfit(device, &[], &limits, code).is_err(), "a need that is not there");
    }

    #[test]
    fn chosen_work_groups_divide_the_grid_and_keep_to_the_limits() {
        let sides = [1024, 1024, 64];
        for (global, most, expected) in [
            ([1024, 1, 1], 1024, [256, 1, 1]),
            ([1000, 1, 1], 1024, [250, 1, 1]),
            ([1021, 1, 1], 1024, [1, 1, 1]),
            ([20, 6, 6], 1024, [20, 6, 2]),
            ([7, 1021, 12], 256, [7, 1, 12]),
            ([1024, 1, 1], 128, [128, 1, 1]),
            ([1, 1, 1000], 256, [1, 1, 50]),
        ] {
            let group = choose(global, most, sides);
            assert_eq!(group, expected, "{global:?}");
            assert!(group.iter().zip(global).all(|(side, global)| global % side == 0));
        }
    }

    #[test]
    fn scalars_have_their_type_and_their_place() {
        for (arg, ty, expected) in [
            (Arg::U32(7), Scalar::U32, Some(7u64)),
            (Arg::I32(-1), Scalar::U32, Some(0xffff_ffff)),
            (Arg::U64(1 << 40), Scalar::I64, Some(1 << 40)),
            (Arg::F32(1.0), Scalar::F32, Some(0x3f80_0000)),
            (Arg::F32(1.0), Scalar::U32, None),
            (Arg::U32(1), Scalar::F32, None),
            (Arg::U32(1), Scalar::U64, None),
            (Arg::U64(1), Scalar::U32, None),
        ] {
            let mut place = [0; 8];
            let packed = pack(&arg, ty, &mut place).then(|| u64::from_le_bytes(place));
            assert_eq!(packed, expected, "{arg:?} as {ty:?}");
        }
        assert!(!pack(&Arg::U32(1), Scalar::U32, &mut [0; 3]), "no room");
    }
}
