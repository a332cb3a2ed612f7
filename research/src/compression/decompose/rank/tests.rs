//! Tests of the choice of a rank.

use super::*;

fn linear(tile: usize, rows: usize, columns: usize) -> RankLimit {
    RankLimit::new(tile, &[FactorCost::linear(rows, columns)]).unwrap()
}

// r·(n + k) < n·k: 64×64 pays up to rank 31, 512×256 up to 170.
#[test]
fn factors_must_be_smaller_than_the_layer() {
    for (tile, rows, columns, rank, up, down) in [
        (1, 64, 64, 31, Some(31), Some(31)),
        (1, 64, 64, 32, None, Some(31)),
        (8, 64, 64, 20, Some(24), Some(16)),
        (8, 64, 64, 25, None, Some(24)),
        (16, 512, 256, 161, None, Some(160)),
        (16, 512, 256, 0, Some(16), None),
        (1, 2, 2, 1, None, None),
        (64, 64, 64, 1, None, None),
    ] {
        let limit = linear(tile, rows, columns);
        assert_eq!(limit.round_up(rank), up, "{tile} {rows}x{columns} {rank}");
        assert_eq!(limit.round_down(rank), down, "{tile} {rows}x{columns} {rank}");
    }
    let parameters = FactorCost { dense: 100, per_rank: 10 };
    let multiply_adds = FactorCost { dense: 100, per_rank: 20 };
    let limit = RankLimit::new(1, &[parameters, multiply_adds]).unwrap();
    assert_eq!(limit.round_down(9), Some(4));
}

// σ² = 16, 9, 4, 1 of 30: shares 0.533, 0.833, 0.967, 1; errors 0.683, 0.408, 0.183, 0.
#[test]
fn energy_and_error_by_hand() {
    let values = [4.0, 3.0, 2.0, 1.0];
    let limit = linear(1, 100, 100);
    for (share, rank) in [(0.5, 1), (0.53, 1), (0.54, 2), (0.83, 2), (0.96, 3), (1.0, 4)] {
        assert_eq!(rank_by_energy(&values, share, &limit).unwrap(), Some(rank), "{share}");
    }
    for (error, rank) in [(0.69, 1), (0.68, 2), (0.41, 2), (0.4, 3), (0.18, 4), (0.0, 4)] {
        assert_eq!(rank_by_error(&values, error, &limit).unwrap(), Some(rank), "{error}");
    }
    let tiled = linear(8, 100, 100);
    assert_eq!(rank_by_error(&values, 0.69, &tiled).unwrap(), Some(8));
    assert_eq!(rank_by_error(&values, 0.69, &linear(8, 16, 16)).unwrap(), None);
    assert_eq!(rank_by_error(&[0.0, 0.0], 0.0, &limit).unwrap(), Some(1));
}

// 128×64 at 192 parameters a rank pays up to rank 42.
#[test]
fn a_budget_is_kept() {
    for (tile, budget, rank) in [
        (1, 1919, Some(9)),
        (1, 1920, Some(10)),
        (4, 1920, Some(8)),
        (16, 1920, None),
        (1, 1_000_000, Some(42)),
        (16, 1_000_000, Some(32)),
        (1, 0, None),
    ] {
        assert_eq!(rank_by_budget(budget, 192, &linear(tile, 128, 64)).unwrap(), rank);
    }
    assert!(rank_by_budget(10, 0, &linear(1, 128, 64)).is_err());
}

#[test]
fn the_cheapest_candidate_within_the_error_wins() {
    let error = |rank: usize| 1.0 / rank as f64;
    // A rank of 12 misses the tile of 8, so it costs more than 16 here.
    let time = |rank: usize| Ok(if rank.is_multiple_of(8) { rank as f64 } else { 20.0 });
    for (candidates, error_max, rank) in [
        (vec![8, 12, 16, 24], 0.1, Some(16)),
        (vec![24, 16, 12, 8], 0.2, Some(8)),
        (vec![9, 10, 11], 0.2, Some(11)),
        (vec![8, 12], 0.01, None),
        (vec![], 0.5, None),
    ] {
        let choice = rank_by_cost(candidates, error, time, error_max).unwrap();
        assert_eq!(choice.map(|choice| choice.rank), rank, "{error_max}");
    }
    let mut measured = Vec::new();
    let count = |rank| {
        measured.push(rank);
        Ok(1.0)
    };
    rank_by_cost([2, 4, 8], error, count, 0.25).unwrap();
    assert_eq!(measured, [4, 8]);
    let failing = |_| Err(bad("measure", "no device"));
    assert!(rank_by_cost([4], error, failing, 0.5).is_err());
    assert!(rank_by_cost([4], error, |_| Ok(f64::NAN), 0.5).is_err());
    assert!(rank_by_cost([4], |_| f64::NAN, |_| Ok(1.0), 0.5).is_err());
    assert!(rank_by_cost([4], error, |_| Ok(1.0), f64::NAN).is_err());
}

#[test]
fn bad_input_is_an_error() {
    let limit = linear(1, 100, 100);
    for values in [&[][..], &[1.0, f64::NAN], &[f64::INFINITY], &[1.0, 2.0], &[1.0, -0.1]] {
        assert!(rank_by_energy(values, 0.5, &limit).is_err(), "{values:?}");
        assert!(rank_by_error(values, 0.5, &limit).is_err(), "{values:?}");
    }
    for share in [-0.1, 1.1, f64::NAN] {
        assert!(rank_by_energy(&[1.0], share, &limit).is_err());
        assert!(rank_by_error(&[1.0], share, &limit).is_err());
    }
    assert!(RankLimit::new(0, &[FactorCost::linear(4, 4)]).is_err());
    assert!(RankLimit::new(1, &[]).is_err());
    let free = RankLimit::new(1, &[FactorCost { dense: 4, per_rank: 0 }]).unwrap();
    assert_eq!(free.round_up(1), None);
}
