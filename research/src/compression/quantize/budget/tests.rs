//! Tests of the budget against brute force.

use super::super::fixtures::rng;
use super::*;
use rand::RngExt;

fn sums(tensors: &[Vec<Choice>], chosen: &[usize]) -> (u64, f64) {
    let picked = tensors.iter().zip(chosen).map(|(t, &i)| t[i]);
    picked.fold((0, 0.0), |(bytes, error), c| (bytes + c.bytes, error + c.error))
}

/// The least error, or the least bytes, of all combinations within the budget.
fn brute_force(tensors: &[Vec<Choice>], budget: Budget) -> f64 {
    let mut best = f64::INFINITY;
    let mut chosen = vec![0; tensors.len()];
    loop {
        let (bytes, error) = sums(tensors, &chosen);
        match budget {
            Budget::Bytes(limit) if bytes <= limit => best = best.min(error),
            Budget::Error(limit) if error <= limit => best = best.min(bytes as f64),
            _ => {}
        }
        let Some(next) = (0..tensors.len()).find(|&t| chosen[t] + 1 < tensors[t].len()) else {
            return best;
        };
        chosen[..next].fill(0);
        chosen[next] += 1;
    }
}

/// Six tensors whose error falls by 4 per bit, the rule of 6.02 dB, with noise on each.
fn random_case(seed: u64) -> Vec<Vec<Choice>> {
    let mut rng = rng(seed);
    let tensor = |_| {
        let (size, power) = (rng.random_range(100..5000u64), rng.random::<f64>().powi(3));
        let choice = |bits: u64| {
            let error = power * size as f64 * 0.25f64.powi(bits as i32);
            Choice { bytes: size * bits / 8, error: error * (0.5 + rng.random::<f64>()) }
        };
        [2, 3, 4, 6, 8].map(choice).to_vec()
    };
    (0..6).map(tensor).collect()
}

/// Within the budget, and on average within 1 % of the optimum of all combinations.
#[test]
fn close_to_brute_force() {
    let (mut ratios, mut worst) = (0f64, 1f64);
    for seed in 0..20 {
        let tensors = random_case(seed);
        let most: u64 = tensors.iter().map(|t| t[4].bytes).sum();
        let errors: f64 = tensors.iter().map(|t| t[0].error).sum();
        for budget in [Budget::Bytes(most / 2), Budget::Error(errors / 20.0)] {
            let (bytes, error) = sums(&tensors, &allocate(&tensors, budget).unwrap());
            let (found, used, limit) = match budget {
                Budget::Bytes(limit) => (error, bytes as f64, limit as f64),
                Budget::Error(limit) => (bytes as f64, error, limit),
            };
            assert!(used <= limit, "{seed} {budget:?}");
            let ratio = found / brute_force(&tensors, budget);
            ratios += ratio / 40.0;
            worst = worst.max(ratio);
        }
    }
    println!("budget: mean ratio to brute force {ratios:.4}, worst {worst:.4}");
    assert!((1.0..1.01).contains(&ratios) && worst < 1.15, "{ratios} {worst}");
}

/// With 150 tensors, no more than 0.1 % above the bound of the dual problem, the largest Σ min(error
/// + λ·bytes) − λ·budget over λ, below which no solution lies.
#[test]
fn close_to_the_dual_bound() {
    let tensors: Vec<Vec<Choice>> = (0..25).flat_map(random_case).collect();
    let limit = tensors.iter().map(|t| t[4].bytes).sum::<u64>() / 2;
    let (bytes, error) = sums(&tensors, &allocate(&tensors, Budget::Bytes(limit)).unwrap());
    let dual = |lambda: f64| {
        let cost = |c: &Choice| c.error + lambda * c.bytes as f64;
        let least = |t: &Vec<Choice>| t.iter().map(cost).fold(f64::INFINITY, f64::min);
        tensors.iter().map(least).sum::<f64>() - lambda * limit as f64
    };
    let bound = (0..2000).map(|i| dual((-f64::from(i) / 100.0).exp2())).fold(0.0, f64::max);
    println!("budget: {:.6} of the dual bound", error / bound);
    assert!(bytes <= limit && error >= bound && error < 1.001 * bound, "{error} {bound}");
}

/// A choice above the line between its neighbours is no solution for any λ; the repair finds it.
#[test]
fn gaps_of_the_hull() {
    let choice = |bytes, error| Choice { bytes, error };
    let tensor = vec![choice(10, 10.0), choice(50, 9.0), choice(100, 0.0)];
    for (limit, expected) in [(10, 0), (49, 0), (50, 1), (99, 1), (100, 2), (1000, 2)] {
        let chosen = allocate(std::slice::from_ref(&tensor), Budget::Bytes(limit)).unwrap();
        assert_eq!(chosen, [expected], "{limit}");
    }
}

/// Equal slopes: error falls with bytes at the same rate in all tensors at the optimum, so the
/// tensor with four times the power gets one more bit.
#[test]
fn water_filling() {
    let tensor = |power: f64| -> Vec<Choice> {
        let choice =
            |bits: u64| Choice { bytes: 100 * bits, error: power * 0.25f64.powi(bits as i32) };
        (1..=8).map(choice).collect()
    };
    let tensors = [tensor(1.0), tensor(4.0), tensor(16.0), tensor(64.0)];
    let chosen = allocate(&tensors, Budget::Bytes(100 * (3 + 4 + 5 + 6))).unwrap();
    assert_eq!(chosen, [2, 3, 4, 5]);
}

#[test]
fn refuses_what_does_not_fit() {
    let one = |error| vec![vec![Choice { bytes: 10, error }]];
    assert!(allocate(&one(1.0), Budget::Bytes(9)).is_err());
    assert!(allocate(&one(1.0), Budget::Error(0.5)).is_err());
    assert!(allocate(&one(1.0), Budget::Error(f64::NAN)).is_err());
    assert!(allocate(&one(f64::NAN), Budget::Bytes(10)).is_err());
    assert!(allocate(&[vec![]], Budget::Bytes(10)).is_err());
    assert_eq!(allocate(&[], Budget::Bytes(0)).unwrap(), [0usize; 0]);
    assert_eq!(allocate(&one(0.0), Budget::Bytes(10)).unwrap(), [0]);
}
