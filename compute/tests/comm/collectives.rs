//! Collectives against sums on the host.

use half::{bf16, f16};
use lgp_compute::comm::{Group, Reduction, TransferConfig};
use lgp_compute::device::{Accelerator, DeviceTensor};
use lgp_compute::{Error, Result};
use lgp_hal::{BackendKind, DeviceId};
use lgp_memory::{DType, Tensor};

const REDUCTIONS: [Reduction; 4] =
    [Reduction::Sum, Reduction::Max, Reduction::Min, Reduction::Mean];
const DTYPES: [DType; 5] = [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64];

/// One device for each of three ranks, in groups of one, two and three.
fn groups() -> std::result::Result<Vec<Group>, Error> {
    let open = |i| Accelerator::new(lgp_hal::open(DeviceId::new(BackendKind::OpenCl, i))?);
    let ranks = (0..3).map(open).collect::<Result<Vec<Accelerator>>>()?;
    // Chunks are small, so that the parts of these tests take several chunks.
    let config = TransferConfig { chunk_bytes: 1000, ..TransferConfig::default() };
    (1..=3).map(|n| Group::new(ranks[..n].to_vec(), config)).collect()
}

/// Integers of -255 to 255 for a rank.
fn numbers(rank: usize, len: usize) -> Vec<i64> {
    let number = |i: usize| (i * 7919 + rank * 104_729 + i * i % 13) % 511;
    (0..len).map(|i| number(i) as i64 - 255).collect()
}

/// A tensor of the numbers; floats are a fraction of the numbers, so that sums are rounded.
fn tensor(numbers: &[i64], dtype: DType) -> Tensor {
    let float = |x: &i64| *x as f32 * 0.37;
    let bytes: Vec<u8> = match dtype {
        DType::F32 => numbers.iter().flat_map(|x| float(x).to_ne_bytes()).collect(),
        DType::F16 => numbers.iter().flat_map(|x| f16::from_f32(float(x)).to_ne_bytes()).collect(),
        DType::BF16 => {
            numbers.iter().flat_map(|x| bf16::from_f32(float(x)).to_ne_bytes()).collect()
        }
        DType::I32 => numbers.iter().flat_map(|x| (*x as i32).to_ne_bytes()).collect(),
        _ => numbers.iter().flat_map(|x| x.to_ne_bytes()).collect(),
    };
    Tensor::from_bytes(dtype, [numbers.len()], &bytes).expect("the shape fits")
}

fn folded<T: Copy>(ranks: &[Vec<T>], combine: impl Fn(T, T) -> T) -> Vec<T> {
    let (n, len) = (ranks.len(), ranks[0].len());
    let part = |i: usize| (0..n).find(|p| i < (p + 1) * len / n).expect("the last ends at len");
    let fold = |i: usize| {
        let p = part(i);
        let turns = (2..=n).map(|turn| ranks[(p + turn) % n][i]);
        turns.fold(ranks[(p + 1) % n][i], &combine)
    };
    (0..len).map(fold).collect()
}

/// The expected result of all ranks, computed on the host in the order that the group promises.
fn expected(how: Reduction, tensors: &[Tensor]) -> Tensor {
    let (dtype, n) = (tensors[0].dtype(), tensors.len());
    let bytes: Vec<u8> = match dtype {
        DType::I32 => {
            let ranks: Vec<Vec<i32>> = tensors.iter().map(words).collect();
            let sums = match how {
                Reduction::Max => folded(&ranks, i32::max),
                Reduction::Min => folded(&ranks, i32::min),
                _ => folded(&ranks, i32::wrapping_add),
            };
            let mean = how == Reduction::Mean;
            sums.iter().flat_map(|x| if mean { x / n as i32 } else { *x }.to_ne_bytes()).collect()
        }
        DType::I64 => {
            let ranks: Vec<Vec<i64>> = tensors.iter().map(words).collect();
            let sums = match how {
                Reduction::Max => folded(&ranks, i64::max),
                Reduction::Min => folded(&ranks, i64::min),
                _ => folded(&ranks, i64::wrapping_add),
            };
            let mean = how == Reduction::Mean;
            sums.iter().flat_map(|x| if mean { x / n as i64 } else { *x }.to_ne_bytes()).collect()
        }
        _ => {
            let ranks: Vec<Vec<f32>> = tensors.iter().map(floats).collect();
            let sums = match how {
                Reduction::Max => folded(&ranks, f32::max),
                Reduction::Min => folded(&ranks, f32::min),
                _ => folded(&ranks, |a, b| a + b),
            };
            let mean = |x: f32| if how == Reduction::Mean { x / n as f32 } else { x };
            return of_floats(&sums.into_iter().map(mean).collect::<Vec<_>>(), dtype);
        }
    };
    Tensor::from_bytes(dtype, tensors[0].shape().clone(), &bytes).expect("the shape fits")
}

fn words<T: lgp_memory::Element>(x: &Tensor) -> Vec<T> {
    x.as_slice::<T>().expect("it has this dtype").to_vec()
}

fn floats(x: &Tensor) -> Vec<f32> {
    let halves = |wide: fn([u8; 2]) -> f32| {
        x.as_bytes().chunks_exact(2).map(|b| wide([b[0], b[1]])).collect()
    };
    match x.dtype() {
        DType::F16 => halves(|b| f16::from_ne_bytes(b).to_f32()),
        DType::BF16 => halves(|b| bf16::from_ne_bytes(b).to_f32()),
        _ => words(x),
    }
}

fn of_floats(x: &[f32], dtype: DType) -> Tensor {
    let bytes: Vec<u8> = match dtype {
        DType::F16 => x.iter().flat_map(|x| f16::from_f32(*x).to_ne_bytes()).collect(),
        DType::BF16 => x.iter().flat_map(|x| bf16::from_f32(*x).to_ne_bytes()).collect(),
        _ => x.iter().flat_map(|x| x.to_ne_bytes()).collect(),
    };
    Tensor::from_bytes(dtype, [x.len()], &bytes).expect("the shape fits")
}

/// A tensor for each rank, on the host and on the rank's device.
fn given(group: &Group, len: usize, dtype: DType) -> Result<(Vec<Tensor>, Vec<DeviceTensor>)> {
    let n = group.ranks().len();
    let tensors: Vec<Tensor> = (0..n).map(|rank| tensor(&numbers(rank, len), dtype)).collect();
    let there = upload(group, &tensors)?;
    Ok((tensors, there))
}

fn upload(group: &Group, tensors: &[Tensor]) -> Result<Vec<DeviceTensor>> {
    group.ranks().iter().zip(tensors).map(|(rank, x)| rank.upload(&x.view())).collect()
}

fn download(group: &Group, tensors: &[DeviceTensor]) -> Result<Vec<Tensor>> {
    group.ranks().iter().zip(tensors).map(|(rank, x)| rank.download(x)).collect()
}

fn agree(what: &str, given: &[Tensor], want: &[Tensor]) {
    for (rank, (given, want)) in given.iter().zip(want).enumerate() {
        let same = given.shape() == want.shape() && given.as_bytes() == want.as_bytes();
        assert!(same, "{what}, rank {rank}: {given:?} is not {want:?}");
    }
    assert_eq!(given.len(), want.len(), "{what}");
}

/// The elements `p · len / n` to `(p + 1) · len / n`.
fn share(x: &Tensor, p: usize, n: usize) -> Tensor {
    let (len, size) = (x.len(), x.dtype().size());
    let (begin, end) = (p * len / n, (p + 1) * len / n);
    let bytes = &x.as_bytes()[begin * size..end * size];
    Tensor::from_bytes(x.dtype(), [end - begin], bytes).expect("the shape fits")
}

fn reductions(group: &Group, how: Reduction, dtype: DType, len: usize) -> Result<()> {
    let n = group.ranks().len();
    let what = format!("{how:?} of {len} {dtype} on {n}");
    let (tensors, there) = given(group, len, dtype)?;
    let want = expected(how, &tensors);
    let scattered = group.reduce_scatter(how, &there)?;
    let shares: Vec<Tensor> = (0..n).map(|p| share(&want, p, n)).collect();
    agree(&format!("scattered {what}"), &download(group, &scattered)?, &shares);
    agree("inputs", &download(group, &there)?, &tensors);
    group.all_reduce(how, &there)?;
    agree(&what, &download(group, &there)?, &vec![want; n]);
    Ok(())
}

fn movements(group: &Group, dtype: DType, len: usize) -> Result<()> {
    let n = group.ranks().len();
    let what = format!("{len} {dtype} on {n}");
    for root in 0..n {
        let (tensors, there) = given(group, len, dtype)?;
        group.broadcast(root, &there)?;
        let want = vec![tensors[root].clone(); n];
        agree(&format!("broadcast {root}, {what}"), &download(group, &there)?, &want);
    }
    // Each rank has another number of rows; rank 1 has none.
    let rows = |rank: usize| if rank == 1 { 0 } else { len + rank };
    let parts: Vec<Tensor> = (0..n)
        .map(|rank| {
            let bytes = tensor(&numbers(rank, rows(rank) * 3), dtype);
            Tensor::from_bytes(dtype, [rows(rank), 3], bytes.as_bytes()).expect("the shape fits")
        })
        .collect();
    let bytes: Vec<u8> = parts.iter().flat_map(|x| x.as_bytes().to_vec()).collect();
    let all = (0..n).map(rows).sum::<usize>();
    let want = Tensor::from_bytes(dtype, [all, 3], &bytes).expect("the shape fits");
    let gathered = group.all_gather(&upload(group, &parts)?)?;
    agree(&format!("all-gather {what}"), &download(group, &gathered)?, &vec![want; n]);
    Ok(())
}

fn refusals(group: &Group) -> Result<()> {
    let (_, there) = given(group, 4, DType::F32)?;
    let (_, other) = given(group, 5, DType::F32)?;
    let (_, bytes) = given(group, 4, DType::I64)?;
    let unlike = [there[0].clone(), other[1].clone(), there[2].clone()];
    let mixed = [there[0].clone(), bytes[1].clone(), there[2].clone()];
    for (what, outcome) in [
        ("too few", group.all_reduce(Reduction::Sum, &there[..2])),
        ("other length", group.all_reduce(Reduction::Sum, &unlike)),
        ("other dtype", group.broadcast(0, &mixed)),
        ("gathered dtypes", group.all_gather(&mixed).map(drop)),
        ("no such root", group.broadcast(3, &there)),
    ] {
        assert!(matches!(outcome, Err(Error::Invalid { .. })), "{what}: {outcome:?}");
    }
    let flags = Tensor::from_bytes(DType::Bool, [2], &[0, 1]).expect("the shape fits");
    let flags = upload(group, &[flags.clone(), flags.clone(), flags])?;
    let outcome = group.all_reduce(Reduction::Max, &flags);
    assert!(matches!(outcome, Err(Error::Unsupported { .. })), "{outcome:?}");
    assert!(matches!(
        Group::new(Vec::new(), TransferConfig::default()),
        Err(Error::Invalid { .. })
    ));
    Ok(())
}

/// Integers that overflow wrap around, and a NaN of any rank is in the result.
fn limits(group: &Group) -> Result<()> {
    let n = group.ranks().len();
    let most = Tensor::from_slice([1], &[i64::MAX]).expect("the shape fits");
    let there = upload(group, &vec![most; n])?;
    group.all_reduce(Reduction::Sum, &there)?;
    let want = (1..n).fold(i64::MAX, |sum, _| sum.wrapping_add(i64::MAX));
    assert_eq!(words::<i64>(&download(group, &there)?[0]), [want]);
    for at in 0..n {
        for how in [Reduction::Max, Reduction::Min] {
            let of = |rank: usize| if rank == at { f32::NAN } else { rank as f32 };
            let tensors: Vec<Tensor> =
                (0..n).map(|rank| Tensor::from_slice([1], &[of(rank)]).expect("fits")).collect();
            let there = upload(group, &tensors)?;
            group.all_reduce(how, &there)?;
            let given = download(group, &there)?;
            assert!(given.iter().all(|x| floats(x)[0].is_nan()), "{how:?} at {at}: {given:?}");
        }
    }
    Ok(())
}

#[test]
fn collectives_agree_with_the_host() -> Result<()> {
    if !super::with_three_devices("collectives::collectives_agree_with_the_host") {
        return Ok(());
    }
    let groups = match groups() {
        Ok(groups) => groups,
        Err(reason) => {
            println!("skipped: opencl: {reason}");
            return Ok(());
        }
    };
    let mut state = 1u64;
    for group in &groups {
        for dtype in DTYPES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = (state >> 33) as usize % 5000;
            for len in [0, 1, 2, 4, 1021, random] {
                movements(group, dtype, len)?;
                REDUCTIONS.iter().try_for_each(|how| reductions(group, *how, dtype, len))?;
            }
        }
    }
    refusals(&groups[2])?;
    groups.iter().try_for_each(limits)
}
