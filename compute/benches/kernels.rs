//! Kernels at the sizes of ResNet-50 and MobileNetV2, batch 1, one thread.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lgp_compute::ops::{Conv, MatMul, Pads, Pool, PoolKind, Softmax, Unary, UnaryKind};
use lgp_compute::{Context, Op};
use lgp_memory::Tensor;
use std::hint::black_box;

fn filled(dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    let data: Vec<f32> = (0..n).map(|i| (i % 17) as f32 * 0.1 - 0.8).collect();
    Tensor::from_slice(dims, &data).expect("a bench's sizes fit memory")
}

/// Runs an op under a name; `operations` are multiply-adds, or elements.
fn bench(c: &mut Criterion, name: &str, op: &dyn Op, inputs: &[Tensor], operations: u64) {
    let context = Context::new(1);
    let views: Vec<_> = inputs.iter().map(|t| Some(t.view())).collect();
    let mut group = c.benchmark_group(name.split('/').next().unwrap_or(name));
    group.throughput(Throughput::Elements(operations));
    group.bench_function(name, |b| b.iter(|| black_box(op.run(&context, &views))));
    group.finish();
}

fn products(c: &mut Criterion) {
    for (m, n, k) in [(64, 3136, 64), (512, 49, 4608), (1, 1000, 2048), (384, 384, 384)] {
        let name = format!("matmul/{m}x{n}x{k}");
        let operations = (m * n * k) as u64;
        bench(c, &name, &MatMul, &[filled(&[m, k]), filled(&[k, n])], operations);
    }
}

fn convolutions(c: &mut Criterion) {
    // (input channels, output channels, side, kernel, stride, group)
    for (i, o, side, k, stride, group) in [
        (3, 64, 224, 7, 2, 1),
        (64, 64, 56, 3, 1, 1),
        (128, 128, 28, 3, 1, 1),
        (256, 256, 14, 3, 1, 1),
        (512, 512, 7, 3, 1, 1),
        (64, 256, 56, 1, 1, 1),
        (1024, 512, 14, 1, 1, 1),
        (256, 512, 56, 1, 2, 1),
        (144, 144, 56, 3, 1, 144),
        (144, 144, 56, 3, 2, 144),
        (960, 960, 7, 3, 1, 960),
    ] {
        let conv = Conv {
            strides: vec![stride; 2],
            pads: Pads::Explicit(vec![k / 2; 4]),
            dilations: Vec::new(),
            group,
        };
        let inputs = [filled(&[1, i, side, side]), filled(&[o, i / group, k, k]), filled(&[o])];
        let outputs = side.div_ceil(stride) * side.div_ceil(stride) * o;
        let kind = if group > 1 { "depthwise" } else { "conv" };
        let name = format!("{kind}/{i}-{o}_{k}x{k}s{stride}_{side}");
        bench(c, &name, &conv, &inputs, (outputs * (i / group) * k * k) as u64);
    }
}

fn others(c: &mut Criterion) {
    let pool = Pool {
        kind: PoolKind::Max,
        kernel: vec![3, 3],
        strides: vec![2, 2],
        pads: Pads::Explicit(vec![1; 4]),
        dilations: Vec::new(),
        ceil_mode: false,
    };
    let elements = |t: &Tensor| t.len() as u64;
    let x = filled(&[1, 64, 112, 112]);
    bench(c, "pool/max_3x3s2_64x112", &pool, std::slice::from_ref(&x), elements(&x));
    for (name, kind) in [
        ("unary/relu", UnaryKind::Relu),
        ("unary/sigmoid", UnaryKind::Sigmoid),
        ("unary/gelu", UnaryKind::Gelu { tanh: false }),
    ] {
        bench(c, name, &Unary::new(kind), std::slice::from_ref(&x), elements(&x));
    }
    let softmax = Softmax { axis: -1, log: false, flatten: false };
    for dims in [vec![1, 1000], vec![12, 197, 197]] {
        let x = filled(&dims);
        bench(c, &format!("softmax/{dims:?}"), &softmax, std::slice::from_ref(&x), elements(&x));
    }
}

criterion_group!(benches, products, convolutions, others);
criterion_main!(benches);
