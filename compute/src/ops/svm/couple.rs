//! One probability for each class from the probabilities within each pair of classes.

/// Minimises `Σᵢ Σⱼ (rⱼᵢ pᵢ - rᵢⱼ pⱼ)²` over the distributions `p`, where `rᵢⱼ` is the probability
/// of `i` among `i` and `j` (Wu, Lin and Weng 2004, algorithm 2). `pairs` holds `rᵢⱼ` for `i < j`.
pub(super) fn couple(pairs: &[f64], classes: usize) -> Vec<f64> {
    const EDGE: f64 = 1e-7;
    let mut r = vec![0.; classes * classes];
    let each = (0..classes).flat_map(|i| (i + 1..classes).map(move |j| (i, j)));
    for ((i, j), p) in each.zip(pairs) {
        let p = p.clamp(EDGE, 1. - EDGE);
        r[i * classes + j] = p;
        r[j * classes + i] = 1. - p;
    }
    let q = quadratic(&r, classes);
    #[allow(clippy::cast_precision_loss, reason = "a number of classes")]
    let n = classes as f64;
    let mut p = vec![1. / n; classes];
    for _ in 0..classes.max(100) {
        let mut qp: Vec<f64> = (0..classes).map(|i| product(&q, &p, i)).collect();
        let mut pqp: f64 = p.iter().zip(&qp).map(|(p, q)| p * q).sum();
        if qp.iter().all(|x| (x - pqp).abs() < 0.005 / n) {
            break;
        }
        for t in 0..classes {
            let step = (pqp - qp[t]) / q[t * classes + t];
            p[t] += step;
            let scale = 1. + step;
            pqp = (pqp + step * (step * q[t * classes + t] + 2. * qp[t])) / (scale * scale);
            for j in 0..classes {
                qp[j] = (qp[j] + step * q[t * classes + j]) / scale;
                p[j] /= scale;
            }
        }
    }
    p
}

/// The matrix of the quadratic form.
fn quadratic(r: &[f64], classes: usize) -> Vec<f64> {
    let mut q = vec![0.; classes * classes];
    for i in 0..classes {
        for j in (0..classes).filter(|&j| j != i) {
            let (ij, ji) = (r[i * classes + j], r[j * classes + i]);
            q[i * classes + i] += ji * ji;
            q[i * classes + j] = -ji * ij;
        }
    }
    q
}

fn product(q: &[f64], p: &[f64], row: usize) -> f64 {
    q[row * p.len()..][..p.len()].iter().zip(p).map(|(q, p)| q * p).sum()
}
