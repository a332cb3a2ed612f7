//! Laws about the results of kernels.

use super::programs::{SOURCE, download, upload, with_programs};
use super::{Broken, Lawful, Verdict, ensure, same};
use lgp_hal::{Arg, Device, Launch, Program};

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

/// A function of the language: its call, its exact value, the range of its first number, and how many units in the last
/// place a result may be off. The second number lies between -8 and 8.
type Function = (&'static str, fn(f64, f64) -> f64, [f32; 2], f64);

/// The limits are those of OpenCL 1.2 (section 7.4), but for `sin`, `cos` and `tan`, whose limit there is 4 and 5: for
/// large numbers this language promises less.
const FUNCTIONS: &[Function] = &[
    ("exp(x)", |x, _| x.exp(), [-87.0, 88.0], 3.0),
    ("expm1(x)", |x, _| x.exp_m1(), [-20.0, 88.0], 4.0),
    ("log(x)", |x, _| x.ln(), [1e-30, 1e3], 3.0),
    ("log(x)", |x, _| x.ln(), [0.5, 2.0], 3.0),
    ("log10(x)", |x, _| x.log10(), [1e-30, 1e3], 3.0),
    ("log1p(x)", |x, _| x.ln_1p(), [-0.99, 2.0], 4.0),
    ("sqrt(x)", |x, _| x.sqrt(), [0.0, 1e9], 3.0),
    ("sin(x)", |x, _| x.sin(), [-1e3, 1e3], 5.0),
    ("cos(x)", |x, _| x.cos(), [-1e3, 1e3], 5.0),
    ("tan(x)", |x, _| x.tan(), [-10.0, 10.0], 6.0),
    ("asin(x)", |x, _| x.asin(), [-1.0, 1.0], 4.0),
    ("acos(x)", |x, _| x.acos(), [-1.0, 1.0], 4.0),
    ("atan(x)", |x, _| x.atan(), [-50.0, 50.0], 5.0),
    ("sinh(x)", |x, _| x.sinh(), [-88.0, 88.0], 4.0),
    ("cosh(x)", |x, _| x.cosh(), [-88.0, 88.0], 4.0),
    ("tanh(x)", |x, _| x.tanh(), [-12.0, 12.0], 5.0),
    ("asinh(x)", |x, _| x.asinh(), [1e-2, 1e6], 4.0),
    ("acosh(x)", |x, _| x.acosh(), [1.01, 1e6], 4.0),
    ("atanh(x)", |x, _| x.atanh(), [-0.99, 0.99], 5.0),
    ("pow(x, y)", f64::powf, [1e-3, 1e3], 16.0),
    ("fmod(x, y)", |x, y| x % y, [-1e4, 1e4], 0.0),
    ("fma(x, y, x)", |x, y| x.mul_add(y, x), [-1e3, 1e3], 0.51),
    ("divide(x, y)", |x, y| x / y, [-1e3, 1e3], 0.5),
    ("floor(x) + ceil(x) + trunc(x)", |x, _| x.floor() + x.ceil() + x.trunc(), [-99.0, 99.0], 0.0),
    ("rint(x) + 2.0f * round(x)", |x, _| x.round_ties_even() + 2.0 * x.round(), [-99.0, 99.0], 0.0),
    ("copysign(x, y) + sign(x)", |x, y| x.copysign(y) + x.signum(), [-9.0, 9.0], 0.5),
    ("fmin(x, y) + fmax(x, y)", |x, y| x.min(y) + x.max(y), [-9.0, 9.0], 0.5),
];

pub(super) fn functions(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let kernel = |(at, function): (usize, &Function)| {
            format!(
                "KERNEL void function{at}(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *out) {{\n\
                 u32 i = GLOBAL_ID(0);\nfloat x = a[i], y = b[i];\nout[i] = {};\n}}\n",
                function.0
            )
        };
        let source: String = FUNCTIONS.iter().enumerate().map(kernel).collect();
        let program = device.compile(&source, "")?;
        FUNCTIONS.iter().enumerate().try_for_each(|(at, one)| function(device, &*program, at, one))
    })
}

fn function(
    device: &dyn Device,
    program: &dyn Program,
    at: usize,
    (call, exact, [low, high], most): &Function,
) -> Lawful {
    let mut state = 1u32;
    let mut draw = |low: f32, high: f32| -> Vec<f32> {
        let mut one = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            low + (high - low) * ((state >> 8) as f32 / (1 << 24) as f32)
        };
        (0..LENGTH).map(|_| one()).collect()
    };
    let (x, y) = (draw(*low, *high), draw(-8.0, 8.0));
    let given = launched(device, program, &format!("function{at}"), [&x, &y], None)?;
    for ((given, x), y) in given.into_iter().zip(x).zip(y) {
        let wanted = exact(f64::from(x), f64::from(y));
        // The distance between the floats beside the exact value.
        let near = wanted as f32;
        let unit = f64::from(near.next_up()) - f64::from(near);
        let off = (f64::from(given) - wanted).abs() / unit.max(f64::from(f32::MIN_POSITIVE));
        ensure(off <= *most, || {
            format!(
                "{call} of {x} and {y} is {given}, expected {wanted}: {off:.2} units off, at most {most}"
            )
        })?;
    }
    Ok(())
}

/// The results of `kernel` for each pair of values from two vectors of equal length.
fn of_floats(
    device: &dyn Device,
    kernel: &str,
    pairs: [&[f32]; 2],
    local: Option<[usize; 3]>,
) -> Result<Vec<f32>, Broken> {
    let program = device.compile(SOURCE, "")?;
    launched(device, &*program, kernel, pairs, local)
}

/// As [`of_floats`], of a program.
fn launched(
    device: &dyn Device,
    program: &dyn Program,
    kernel: &str,
    pairs: [&[f32]; 2],
    local: Option<[usize; 3]>,
) -> Result<Vec<f32>, Broken> {
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
    let launch = Launch { program, kernel, global, local, args: &args };
    // SAFETY: each work-item uses one element of each buffer, and each buffer has as many elements
    // as there are work-items.
    unsafe { queue.launch(&launch)? };
    Ok(download(&mut *queue, &*out)?.into_iter().map(f32::from_bits).collect())
}
