//! Times channels-last convolution on the layers of ResNet-50 and MobileNetV2 and compares each
//! time with the machine's least time: `conv_layers [THREADS [BATCH [NETWORK]]]`.

use lgp_compute::ops::{Conv, ConvGeometry, ConvHints, ConvNhwc, Pads, Transpose};
use lgp_compute::{Activation, Context, Op};
use lgp_memory::Tensor;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// `(network, times, c, m, input side, kernel, stride, group, residual)`.
type Layer = (&'static str, usize, usize, usize, usize, usize, usize, usize, bool);

const LAYERS: &[Layer] = &[
    ("resnet50", 1, 3, 64, 224, 7, 2, 1, false),
    ("resnet50", 1, 64, 64, 56, 1, 1, 1, false),
    ("resnet50", 3, 64, 64, 56, 3, 1, 1, false),
    ("resnet50", 1, 64, 256, 56, 1, 1, 1, false),
    ("resnet50", 3, 64, 256, 56, 1, 1, 1, true),
    ("resnet50", 2, 256, 64, 56, 1, 1, 1, false),
    ("resnet50", 1, 256, 128, 56, 1, 1, 1, false),
    ("resnet50", 1, 128, 128, 56, 3, 2, 1, false),
    ("resnet50", 4, 128, 512, 28, 1, 1, 1, true),
    ("resnet50", 1, 256, 512, 56, 1, 2, 1, false),
    ("resnet50", 3, 512, 128, 28, 1, 1, 1, false),
    ("resnet50", 3, 128, 128, 28, 3, 1, 1, false),
    ("resnet50", 1, 512, 256, 28, 1, 1, 1, false),
    ("resnet50", 1, 256, 256, 28, 3, 2, 1, false),
    ("resnet50", 6, 256, 1024, 14, 1, 1, 1, true),
    ("resnet50", 1, 512, 1024, 28, 1, 2, 1, false),
    ("resnet50", 5, 1024, 256, 14, 1, 1, 1, false),
    ("resnet50", 5, 256, 256, 14, 3, 1, 1, false),
    ("resnet50", 1, 1024, 512, 14, 1, 1, 1, false),
    ("resnet50", 1, 512, 512, 14, 3, 2, 1, false),
    ("resnet50", 3, 512, 2048, 7, 1, 1, 1, true),
    ("resnet50", 1, 1024, 2048, 14, 1, 2, 1, false),
    ("resnet50", 2, 2048, 512, 7, 1, 1, 1, false),
    ("resnet50", 2, 512, 512, 7, 3, 1, 1, false),
    ("mobilenetv2", 1, 3, 32, 224, 3, 2, 1, false),
    ("mobilenetv2", 1, 32, 32, 112, 3, 1, 32, false),
    ("mobilenetv2", 1, 32, 16, 112, 1, 1, 1, false),
    ("mobilenetv2", 1, 16, 96, 112, 1, 1, 1, false),
    ("mobilenetv2", 1, 96, 96, 112, 3, 2, 96, false),
    ("mobilenetv2", 1, 96, 24, 56, 1, 1, 1, false),
    ("mobilenetv2", 2, 24, 144, 56, 1, 1, 1, false),
    ("mobilenetv2", 1, 144, 144, 56, 3, 1, 144, false),
    ("mobilenetv2", 1, 144, 24, 56, 1, 1, 1, true),
    ("mobilenetv2", 1, 144, 144, 56, 3, 2, 144, false),
    ("mobilenetv2", 1, 144, 32, 28, 1, 1, 1, false),
    ("mobilenetv2", 3, 32, 192, 28, 1, 1, 1, false),
    ("mobilenetv2", 2, 192, 192, 28, 3, 1, 192, false),
    ("mobilenetv2", 2, 192, 32, 28, 1, 1, 1, true),
    ("mobilenetv2", 1, 192, 192, 28, 3, 2, 192, false),
    ("mobilenetv2", 1, 192, 64, 14, 1, 1, 1, false),
    ("mobilenetv2", 4, 64, 384, 14, 1, 1, 1, false),
    ("mobilenetv2", 4, 384, 384, 14, 3, 1, 384, false),
    ("mobilenetv2", 3, 384, 64, 14, 1, 1, 1, true),
    ("mobilenetv2", 1, 384, 96, 14, 1, 1, 1, false),
    ("mobilenetv2", 3, 96, 576, 14, 1, 1, 1, false),
    ("mobilenetv2", 2, 576, 576, 14, 3, 1, 576, false),
    ("mobilenetv2", 2, 576, 96, 14, 1, 1, 1, true),
    ("mobilenetv2", 1, 576, 576, 14, 3, 2, 576, false),
    ("mobilenetv2", 1, 576, 160, 7, 1, 1, 1, false),
    ("mobilenetv2", 3, 160, 960, 7, 1, 1, 1, false),
    ("mobilenetv2", 3, 960, 960, 7, 3, 1, 960, false),
    ("mobilenetv2", 2, 960, 160, 7, 1, 1, 1, true),
    ("mobilenetv2", 1, 960, 320, 7, 1, 1, 1, false),
    ("mobilenetv2", 1, 320, 1280, 7, 1, 1, 1, false),
];

/// Pseudo-random numbers of -1 to 1, scaled down by the number of terms of a sum.
fn filled(dims: &[usize], scale: f32) -> Tensor {
    let n: usize = dims.iter().product();
    let mut state = 1u32;
    let data: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) as f32 / (1 << 23) as f32 - 1.) * scale
        })
        .collect();
    Tensor::from_slice(dims, &data).expect("a layer's sizes fit memory")
}

/// The least time of several runs.
fn time(mut run: impl FnMut()) -> Duration {
    run();
    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut runs = 0;
    while runs < 3 || (start.elapsed() < Duration::from_millis(60) && runs < 200) {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed());
        runs += 1;
    }
    best
}

/// The rate of multiply-adds within registers, in GFLOPS.
#[cfg(target_arch = "x86_64")]
fn peak() -> f64 {
    use std::arch::x86_64::*;
    #[target_feature(enable = "avx512f")]
    fn chains(n: usize) -> f32 {
        let (b, c) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(1e-6)));
        let mut acc = [c; 24];
        for _ in 0..n {
            for acc in &mut acc {
                *acc = _mm512_fmadd_ps(*acc, b, c);
            }
        }
        let sum = acc.into_iter().fold(c, |a, b| _mm512_add_ps(a, b));
        _mm512_reduce_add_ps(sum)
    }
    if !is_x86_feature_detected!("avx512f") {
        return f64::NAN;
    }
    let n = 1 << 18;
    // SAFETY: the feature was just detected.
    let best = time(|| _ = black_box(unsafe { chains(black_box(n)) }));
    (n * 24 * 32) as f64 / best.as_secs_f64() / 1e9
}

#[cfg(not(target_arch = "x86_64"))]
fn peak() -> f64 {
    f64::NAN
}

fn permuted(x: &Tensor, perm: &[usize], ctx: &Context) -> Tensor {
    let op = Transpose { perm: Some(perm.to_vec()) };
    op.run(ctx, &[Some(x.view())]).expect("a transpose").remove(0)
}

/// Runs a layer. The answer is its time, its multiply-adds, and its largest difference from the
/// plain operator.
fn layer(ctx: &Context, batch: usize, layer: &Layer) -> (Duration, f64, f32) {
    let &(_, _, c, m, side, kernel, stride, group, residual) = layer;
    let geometry = ConvGeometry {
        kernel: [kernel; 2],
        strides: [stride; 2],
        dilations: [1; 2],
        pads: Pads::Explicit(vec![kernel / 2; 4]),
        group,
        channels: c,
        maps: m,
    };
    let terms = kernel * kernel * (c / group);
    let weight = filled(&[m, c / group, kernel, kernel], (3. / terms as f32).sqrt());
    let hints = ConvHints { batch: Some(batch), input: Some([side; 2]), bf16: false };
    let (op, packed) = ConvNhwc::pack(geometry, &weight.view(), hints).expect("a geometry");
    let op = op.with_activation(Activation::Clip { min: -0.5, max: 6. });
    let x = filled(&[batch, side, side, c], 1.);
    let bias = filled(&[m], 1.);
    let out = side.div_ceil(stride);
    let added = filled(&[batch, out, out, m], 1.);
    let inputs =
        [Some(x.view()), Some(packed.view()), Some(bias.view()), residual.then(|| added.view())];
    let got = op.run(ctx, &inputs).expect("a convolution").remove(0);
    let best = time(|| drop(op.run(ctx, &inputs).expect("a convolution")));
    let mut error = f32::NAN;
    if std::env::args().len() == 1 {
        let plain = Conv {
            strides: vec![stride; 2],
            pads: Pads::Explicit(vec![kernel / 2; 4]),
            dilations: Vec::new(),
            group,
        };
        let x = permuted(&x, &[0, 3, 1, 2], ctx);
        let inputs = [Some(x.view()), Some(weight.view()), Some(bias.view())];
        let want = plain.run(ctx, &inputs).expect("a convolution").remove(0);
        let want = permuted(&want, &[0, 2, 3, 1], ctx);
        let all =
            got.as_slice::<f32>().expect("f32").iter().zip(want.as_slice::<f32>().expect("f32"));
        let added = added.as_slice::<f32>().expect("f32");
        error = all.zip(added).fold(0f32, |e, ((got, want), added)| {
            let want = want + if residual { *added } else { 0. };
            e.max((got - want.clamp(-0.5, 6.)).abs())
        });
    }
    (best, (batch * out * out * m * terms) as f64, error)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(1usize);
    let (threads, batch) = (number(0), number(1));
    let ctx = Context::new(threads);
    let peak = peak() * threads as f64;
    println!("{threads} threads, batch {batch}, peak {peak:.0} GFLOPS");
    println!("{:>12} {:>34} {:>8} {:>8} {:>6}", "network", "layer", "ms", "GFLOPS", "%");
    for network in ["resnet50", "mobilenetv2"] {
        if args.get(2).is_some_and(|name| name != network) {
            continue;
        }
        let mut sum = 0.;
        for l in LAYERS.iter().filter(|l| l.0 == network) {
            let (best, products, error) = layer(&ctx, batch, l);
            let &(_, times, c, m, side, kernel, stride, group, _) = l;
            let kind = if group > 1 { "depthwise " } else { "" };
            let name = format!("{times}x {kind}{c}-{m} {kernel}x{kernel}s{stride} @{side}");
            let seconds = best.as_secs_f64();
            let rate = 2. * products / seconds / 1e9;
            let share = 100. * rate / peak;
            let ms = seconds * 1e3;
            println!("{network:>12} {name:>34} {ms:>8.3} {rate:>8.1} {share:>6.1}  {error:.1e}");
            sum += ms * times as f64;
        }
        println!("{network:>12} {:>34} {sum:>8.3}", "all convolutions");
    }
}
