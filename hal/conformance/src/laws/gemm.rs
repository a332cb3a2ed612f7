//! Laws about the vendors' matrix products.

use super::{Lawful, Verdict, ensure, refused, same, told};
use lgp_hal::{Blas, Device, DeviceId, Error, Gemm, Matrix};

/// Rows, columns, sum, products, whether the operands are transposed, padding of each row, and
/// whether all products share the right operand.
type Case = (usize, usize, usize, usize, bool, bool, usize, bool);

const CASES: [Case; 8] = [
    (3, 5, 7, 1, false, false, 0, false),
    (3, 5, 7, 1, true, false, 0, false),
    (3, 5, 7, 1, false, true, 0, false),
    (33, 17, 65, 1, true, true, 3, false),
    (4, 6, 8, 5, false, true, 2, false),
    (4, 6, 8, 5, false, false, 0, true),
    (1, 1, 1, 1, false, false, 0, false),
    (2, 3, 0, 1, false, false, 1, false),
];

pub(super) fn presence(device: &dyn Device) -> Lawful {
    let (said, found) = (device.caps().gemm, device.blas().is_some());
    ensure(said == found, || format!("the caps say {said}, and the device {found}"))
}

pub(super) fn products(device: &dyn Device) -> Verdict {
    match device.blas() {
        Some(blas) => told(CASES.into_iter().try_for_each(|case| multiply(device, &*blas, case))),
        None => Verdict::Skipped("the device has no such library".to_owned()),
    }
}

fn product<'a>(case: Case, [a, b, c]: [Matrix<'a>; 3]) -> Gemm<'a> {
    let (m, n, k, batch, transpose_a, transpose_b, ..) = case;
    Gemm { m, n, k, batch, a, b, c, transpose_a, transpose_b, alpha: 2.0, beta: -1.0 }
}

/// Small whole numbers, whose sums are exact in any order.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    super::pattern(count, seed).iter().map(|byte| f32::from(byte % 16) - 8.0).collect()
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn multiply(device: &dyn Device, blas: &dyn Blas, case: Case) -> Lawful {
    let (m, n, k, batch, transpose_a, transpose_b, padding, shared) = case;
    let (rows_a, columns_a) = if transpose_a { (k, m) } else { (m, k) };
    let (rows_b, columns_b) = if transpose_b { (n, k) } else { (k, n) };
    let strides = [columns_a, columns_b, n].map(|columns| columns + padding);
    let apart = [rows_a * strides[0], if shared { 0 } else { rows_b * strides[1] }, m * strides[2]];
    let counts =
        [batch * apart[0], rows_b * strides[1] * if shared { 1 } else { batch }, batch * apart[2]];
    let mut queue = device.queue()?;
    let (mut values, mut buffers) = (Vec::new(), Vec::new());
    for (count, seed) in counts.into_iter().zip(31..) {
        let numbers = numbers(count, seed);
        let buffer = device.allocate(4 * count)?;
        queue.write(&*buffer, 0, &bytes_of(&numbers))?;
        values.push(numbers);
        buffers.push(buffer);
    }
    let matrix = |at: usize| Matrix {
        buffer: &*buffers[at],
        row_stride: strides[at],
        batch_stride: apart[at],
    };
    let gemm = product(case, [matrix(0), matrix(1), matrix(2)]);
    blas.gemm(&mut *queue, &gemm)?;
    let mut expected = values[2].clone();
    for (product, row, column) in (0..batch * m * n).map(|at| (at / (m * n), at / n % m, at % n)) {
        let left =
            |at: usize| if transpose_a { at * strides[0] + row } else { row * strides[0] + at };
        let right = |at: usize| {
            if transpose_b { column * strides[1] + at } else { at * strides[1] + column }
        };
        let term = |at: usize| {
            values[0][product * apart[0] + left(at)] * values[1][product * apart[1] + right(at)]
        };
        let place = &mut expected[product * apart[2] + row * strides[2] + column];
        *place = 2.0 * (0..k).map(term).sum::<f32>() - *place;
    }
    let mut back = vec![0; 4 * counts[2]];
    queue.read(&*buffers[2], 0, &mut back)?;
    let words = back.chunks_exact(4).map(|it| [it[0], it[1], it[2], it[3]]);
    let given: Vec<f32> = words.map(f32::from_ne_bytes).collect();
    same(&format!("{case:?}"), &given, &expected)?;
    let too_long = Gemm { m: m + 1, ..gemm };
    refused("a result beyond its buffer", blas.gemm(&mut *queue, &too_long), |error| {
        matches!(error, Error::Launch { .. })
    })?;
    let mut other = lgp_hal::open(DeviceId::CPU)?.queue()?;
    refused("a queue of another device", blas.gemm(&mut *other, &gemm), |error| {
        matches!(error, Error::Foreign { .. })
    })
}
