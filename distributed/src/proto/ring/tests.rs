//! Whole rings in memory, with frames that arrive in any order of ranks.

use super::*;
use lgp_memory::{DType, Reduction};
use proptest::prelude::*;
use std::collections::VecDeque;

fn call(operation: Operation, dtype: DType, count: usize) -> Call {
    let count = u64::try_from(count).expect("small");
    Call { number: 1, operation, dtype, count, how: None, root: None }
}

/// Runs one pass at all ranks; `order` picks the rank that goes on. Stops when no rank can.
fn pass<W: Word>(
    data: &mut [Vec<W>],
    call: &Call,
    passes: Vec<Pass>,
    take: impl Fn(&[u8], &mut [W]) + Copy,
    order: &[usize],
) {
    let n = data.len();
    let mut rounds: Vec<_> =
        data.iter_mut().zip(passes).map(|(x, pass)| Round::new(call, pass, x, take)).collect();
    let mut links: Vec<VecDeque<Vec<u8>>> = vec![VecDeque::new(); n];
    let mut order = order.iter().cycle().take(1_000_000);
    while rounds.iter().any(|round| round.expected().is_some()) {
        let rank = order.next().expect("the ring does not stand still") % n;
        if let Some(frame) = rounds[rank].frame() {
            links[rank].push_back(frame);
        }
        let before = (rank + n - 1) % n;
        if let Some(frame) = links[before].pop_front() {
            let (header, body) = frame.split_first_chunk().expect("a header");
            assert_eq!(rounds[rank].check(header), Ok(()));
            assert_eq!(rounds[rank].expected(), Some(body.len()));
            rounds[rank].take(body);
        }
    }
    assert!(rounds.iter_mut().all(|round| round.frame().is_none()), "all was sent");
    assert!(links.iter().all(VecDeque::is_empty), "every frame was expected");
}

/// The reduction that is promised: elements of part `p` in the order of ranks `p + 1`, … `p`.
fn plain(how: Reduction, data: &[Vec<f32>]) -> Vec<f32> {
    let (n, len) = (data.len(), data[0].len());
    let mut all = vec![0.; len];
    for (p, part) in parts(len, n).into_iter().enumerate() {
        for i in part {
            let ranks = (1..=n).map(|step| data[(p + step) % n][i]);
            let total = ranks.reduce(|sum, own| match how {
                Reduction::Sum | Reduction::Mean => sum + own,
                Reduction::Max => sum.max(own),
                Reduction::Min => sum.min(own),
            });
            let total = total.expect("a rank");
            all[i] = if how == Reduction::Mean { total / n as f32 } else { total };
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_arrival_gives_the_bits_of_the_plain_sum(
        n in 2usize..6,
        len in 0usize..60,
        chunk in 1usize..20,
        how in prop::sample::select(vec![Reduction::Sum, Reduction::Max, Reduction::Min, Reduction::Mean]),
        // Numbers of very different sizes, so that another order of additions has other bits.
        numbers in prop::collection::vec((-1e3f32..1e3, -8i32..8), 300),
        mut order in prop::collection::vec(0usize..60, 1..40),
    ) {
        // Every rank gets a turn.
        order.extend(0..n);
        let mut numbers = numbers.iter().map(|(x, e)| x * 10f32.powi(*e)).cycle();
        let mut data: Vec<Vec<f32>> = (0..n).map(|_| numbers.by_ref().take(len).collect()).collect();
        let expected = plain(how, &data);
        let call = call(Operation::AllReduce, DType::F32, len);
        let parts = parts(len, n);
        let around = |back: usize| (0..n).map(|rank| Pass::around(&parts, (rank + n - back) % n, chunk)).collect();
        pass(&mut data, &call, around(1), |bytes, own| Sum::join(how, bytes, own), &order);
        if how == Reduction::Mean {
            for (rank, part) in parts.iter().enumerate() {
                Sum::divide(&mut data[rank][part.clone()], u16::try_from(n).expect("small"));
            }
        }
        pass(&mut data, &call, around(0), Word::get, &order);
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for own in &data {
            prop_assert_eq!(bits(own), bits(&expected));
        }
    }

    #[test]
    fn a_broadcast_reaches_everybody(
        n in 2usize..6,
        len in 0usize..60,
        chunk in 1usize..20,
        root in 0usize..6,
        mut order in prop::collection::vec(0usize..60, 1..40),
    ) {
        order.extend(0..n);
        let root = root % n;
        let wanted: Vec<i32> = (1..).take(len).collect();
        let mut data = vec![vec![0; len]; n];
        data[root].clone_from(&wanted);
        let call = Call { root: u32::try_from(root).ok(), ..call(Operation::Broadcast, DType::I32, len) };
        let passes = (0..n).map(|rank| Pass::along(len, (rank, root, n), chunk)).collect();
        pass(&mut data, &call, passes, Word::get, &order);
        prop_assert!(data.iter().all(|own| *own == wanted));
    }
}

#[test]
fn numbers_are_joined_as_collectives_between_devices_join_them() {
    fn joined<W: Sum>(how: Reduction, sum: W, own: W) -> W {
        let (mut bytes, mut own) = (vec![0; size_of::<W>()], [own]);
        W::put(&[sum], &mut bytes);
        W::join(how, &bytes, &mut own);
        own[0]
    }
    assert_eq!(joined(Reduction::Sum, i32::MAX, 1), i32::MIN);
    assert_eq!(joined(Reduction::Max, -1i64, 1), 1);
    assert_eq!(joined(Reduction::Min, -1f64, 1.), -1.);
    for (sum, own) in [(f32::NAN, 1.), (1., f32::NAN)] {
        for how in [Reduction::Sum, Reduction::Max, Reduction::Min] {
            assert!(joined(how, sum, own).is_nan(), "{how:?} of {sum} and {own}");
        }
    }
    let mut sums = [7, -7];
    i32::divide(&mut sums, 2);
    assert_eq!(sums, [3, -3]);
}
