//! Hadamard matrices: Sylvester's by a fast transform, and Paley's from quadratic residues. "On
//! Orthogonal Matrices" (1933).

use ndarray::Array2;

/// The smallest Hadamard matrix H of an order m for which k/m is a power of two.
pub(super) fn base(k: usize) -> Option<Array2<f32>> {
    if k.is_power_of_two() {
        return Some(Array2::ones((1, 1)));
    }
    (0..=k.trailing_zeros()).rev().find_map(|halvings| paley(k >> halvings))
}

/// Paley's matrix of an order that is one more than a prime 3 mod 4, or twice one more than a prime
/// 1 mod 4.
fn paley(order: usize) -> Option<Array2<f32>> {
    if order < 4 || !order.is_multiple_of(4) {
        return None;
    }
    if is_prime(order - 1) {
        // H = I + S with the skew S = [0 1; −1 Q].
        let residues = residues(order - 1);
        return Some(Array2::from_shape_fn((order, order), |(i, j)| {
            let s = conference(&residues, i, j);
            if i == j { 1.0 } else { if j == 0 { -s } else { s } }
        }));
    }
    let half = order / 2;
    if half % 4 != 2 || !is_prime(half - 1) {
        return None;
    }
    // H = S ⊗ [1 1; 1 −1] + I ⊗ [1 −1; −1 −1] with the symmetric S = [0 1; 1 Q].
    let residues = residues(half - 1);
    Some(Array2::from_shape_fn((order, order), |(i, j)| {
        let lower = i % 2 == 1 && j % 2 == 1;
        let differ = i % 2 != j % 2;
        if i / 2 == j / 2 {
            if lower || differ { -1.0 } else { 1.0 }
        } else {
            conference(&residues, i / 2, j / 2) * if lower { -1.0 } else { 1.0 }
        }
    }))
}

/// Values of [0 1; 1 Q] off the diagonal, where Q_ij is 1 if i − j is a square and −1 otherwise.
fn conference(residues: &[bool], i: usize, j: usize) -> f32 {
    let q = residues.len();
    if i == 0 || j == 0 || residues[(i + q - j) % q] { 1.0 } else { -1.0 }
}

/// Whether each number below the prime q is a square modulo q.
fn residues(q: usize) -> Vec<bool> {
    let mut residues = vec![false; q];
    for i in 1..q {
        residues[i * i % q] = true;
    }
    residues
}

fn is_prime(n: usize) -> bool {
    n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

/// x ← H x with Sylvester's H, for a power of two of values.
pub(super) fn walsh_hadamard(x: &mut [f32]) {
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H Hᵀ = m·I with values ±1, for the smallest order of each size.
    #[test]
    fn smallest_orders() {
        for (k, order) in [
            (8, Some(1)),
            (12, Some(12)),
            (768, Some(12)),
            (5120, Some(20)),
            (14336, Some(28)),
            (36, Some(36)),
            (104, Some(104)),
            (4864, Some(76)),
            (18944, Some(148)),
            (92, None),
            (6, None),
            (9, None),
        ] {
            let found = base(k);
            assert_eq!(found.as_ref().map(|h| h.nrows()), order, "{k}");
            if let Some(h) = found {
                assert!(h.iter().all(|v| v.abs() == 1.0), "{k}");
                let identity = Array2::<f32>::eye(h.nrows()) * h.nrows() as f32;
                assert_eq!(h.dot(&h.t()), identity, "{k}");
            }
        }
    }

    #[test]
    fn sylvester() {
        let mut x = [1.0, 2.0, 3.0, 4.0];
        walsh_hadamard(&mut x);
        assert_eq!(x, [10.0, -2.0, -4.0, 0.0]);
    }
}
