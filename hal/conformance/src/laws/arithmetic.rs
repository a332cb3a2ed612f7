//! Laws about the results of kernels.

use super::programs::{SOURCE, download, upload, with_programs};
use super::{Broken, Verdict, ensure, same};
use lgp_hal::{Arg, Device, Launch};

const LENGTH: usize = 1024;

pub(super) fn add_vectors(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let floats = |scale: f32| -> Vec<f32> { (0..LENGTH).map(|it| it as f32 * scale).collect() };
        let (a, b) = (floats(0.5), floats(-3.0));
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        for local in [None, Some([64, 1, 1]), Some([1, 1, 1])] {
            let given = of_floats(device, "add", [&a, &b], local)?;
            same(&format!("sums with work-groups of {local:?}"), &given, &expected)?;
        }
        Ok(())
    })
}

pub(super) fn quotients(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let mut state = 1u32;
        let mut float = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Of either sign, between 2^-31 and 2^32.
            f32::from_bits((state & 0x807f_ffff) | (96 + (state >> 23 & 63)) << 23)
        };
        let mut draw = || -> Vec<f32> { (0..LENGTH).map(|_| float()).collect() };
        let (mut a, mut b) = (draw(), draw());
        let edges = [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY];
        for (i, x) in edges.into_iter().enumerate() {
            for (j, y) in edges.into_iter().enumerate() {
                (a[edges.len() * i + j], b[edges.len() * i + j]) = (x, y);
            }
        }
        // Any NaN matches any other.
        let bits = |x: f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
        let given = of_floats(device, "quotients", [&a, &b], None)?;
        for ((given, x), y) in given.into_iter().zip(a).zip(b) {
            same(&format!("{x} / {y}"), &[bits(given)], &[bits(x / y)])?;
        }
        Ok(())
    })
}

/// The results of `kernel` for each pair of values from two vectors of equal length.
fn of_floats(
    device: &dyn Device,
    kernel: &str,
    pairs: [&[f32]; 2],
    local: Option<[usize; 3]>,
) -> Result<Vec<f32>, Broken> {
    let program = device.compile(SOURCE, "")?;
    ensure(program.kernels().iter().any(|name| name == kernel), || {
        format!("kernels {:?} lack {kernel}", program.kernels())
    })?;
    let mut queue = device.queue()?;
    let bits = pairs.map(|values| values.iter().map(|it| it.to_bits()).collect::<Vec<u32>>());
    let left = upload(device, &mut *queue, &bits[0])?;
    let right = upload(device, &mut *queue, &bits[1])?;
    let out = upload(device, &mut *queue, &vec![0; pairs[0].len()])?;
    let args = [Arg::Buffer(&*left), Arg::Buffer(&*right), Arg::Buffer(&*out)];
    let global = [pairs[0].len(), 1, 1];
    let launch = Launch { program: &*program, kernel, global, local, args: &args };
    // SAFETY: each work-item uses one element of each buffer, and each buffer has as many elements
    // as there are work-items.
    unsafe { queue.launch(&launch)? };
    Ok(download(&mut *queue, &*out)?.into_iter().map(f32::from_bits).collect())
}
