//! How NSGA-II picks parents and makes children.

use rand::{Rng, RngExt};

use crate::compression::prune::pareto::crowded_order;

/// The better of two random individuals of `ranks`, which is not empty, by front and crowding
/// distance.
pub(super) fn tournament(ranks: &[(usize, f64)], rng: &mut impl Rng) -> usize {
    let (a, b) = (rng.random_range(0..ranks.len()), rng.random_range(0..ranks.len()));
    if crowded_order(ranks[b], ranks[a]).is_lt() { b } else { a }
}

/// Swaps each gene with probability ½.
pub(super) fn uniform_crossover(first: &mut [f64], second: &mut [f64], rng: &mut impl Rng) {
    for (a, b) in first.iter_mut().zip(second) {
        if rng.random() {
            std::mem::swap(a, b);
        }
    }
}

/// Moves each gene with `probability` by polynomial mutation.
pub(super) fn mutate(
    genome: &mut [f64],
    probability: f64,
    distribution_index: f64,
    rng: &mut impl Rng,
) {
    for gene in genome {
        if rng.random_bool(probability) {
            let moved = *gene + polynomial_step(*gene, rng.random(), distribution_index);
            *gene = moved.clamp(0.0, 1.0);
        }
    }
}

/// The step of a gene in [0, 1] that `u`, uniform in [0, 1), draws: from −gene at 0 over 0 at ½ to
/// 1 − gene at 1 ("A combined genetic adaptive search (GeneAS) for engineering design", Deb & Goyal
/// 1996, in its bounded form).
fn polynomial_step(gene: f64, u: f64, distribution_index: f64) -> f64 {
    let power = distribution_index + 1.0;
    if u < 0.5 {
        (2.0 * u + (1.0 - 2.0 * u) * (1.0 - gene).powf(power)).powf(1.0 / power) - 1.0
    } else {
        1.0 - (2.0 - 2.0 * u + (2.0 * u - 1.0) * gene.powf(power)).powf(1.0 / power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};

    /// The ends of the distribution reach the bounds, its middle stands still, and it is monotone.
    #[test]
    fn steps_stay_within_the_bounds() {
        for gene in [0.0, 0.25, 0.5, 1.0] {
            for index in [0.0, 5.0, 20.0] {
                let ends = [0.0, 0.5, 1.0].map(|u| polynomial_step(gene, u, index));
                let expected = [-gene, 0.0, 1.0 - gene];
                assert!(ends.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{ends:?}");
                let steps = (0..=100).map(|i| polynomial_step(gene, f64::from(i) / 100.0, index));
                assert!(steps.is_sorted_by(|a, b| a <= b), "{gene} {index}");
            }
        }
    }

    /// Crossover swaps half of the genes and loses none; mutation moves the asked share.
    #[test]
    fn shares_of_genes() {
        let mut rng = StdRng::seed_from_u64(1);
        let (mut a, mut b) = (vec![0.0; 10_000], vec![1.0; 10_000]);
        uniform_crossover(&mut a, &mut b, &mut rng);
        assert!(a.iter().zip(&b).all(|(a, b)| a + b == 1.0));
        assert!((a.iter().sum::<f64>() - 5_000.0).abs() < 200.0);
        let mut genome = vec![0.5; 10_000];
        mutate(&mut genome, 0.1, 20.0, &mut rng);
        let moved = genome.iter().filter(|gene| **gene != 0.5).count() as f64;
        assert!((moved - 1_000.0).abs() < 120.0, "{moved}");
    }

    /// Of two individuals the better wins unless it is not drawn: with probability ¾.
    #[test]
    fn the_tournament_prefers_front_then_distance() {
        let mut rng = StdRng::seed_from_u64(2);
        for ranks in [[(0, 0.1), (1, 9.0)], [(0, 2.0), (0, 1.0)]] {
            let wins = (0..10_000).filter(|_| tournament(&ranks, &mut rng) == 0).count() as f64;
            assert!((wins - 7_500.0).abs() < 200.0, "{wins}");
        }
    }
}
