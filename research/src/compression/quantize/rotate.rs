//! Rotations that spread outliers over all inputs. "QuaRot: Outlier-Free 4-Bit Inference in Rotated
//! LLMs" (2024).

mod hadamard;

use crate::error::{Error, Result};
use faer::Mat;
use hadamard::{base, walsh_hadamard};
use ndarray::{Array1, Array2, ArrayViewMut1, ArrayViewMut2};
use rand::{Rng, RngExt};

/// A random orthogonal matrix R of k by k, for W x = (W Rᵀ) (R x).
///
/// R is H diag(±1) / √k with a Hadamard matrix H where one is known for k: a power of two times an
/// order of Paley's constructions, as 12, 20 or 28. Then a product with R costs k·(m + log₂(k/m))
/// for the order m. Otherwise R is the orthogonal factor of a Gaussian matrix, at k³ once and k² per
/// product.
#[derive(Debug, Clone)]
pub struct Rotation {
    kind: Kind,
    k: usize,
}

#[derive(Debug, Clone)]
enum Kind {
    Hadamard { signs: Vec<f32>, base: Array2<f32> },
    Dense(Array2<f32>),
}

impl Rotation {
    /// A random rotation of vectors of k values.
    ///
    /// # Errors
    /// Fails if k is 0.
    pub fn random(k: usize, rng: &mut impl Rng) -> Result<Self> {
        if k == 0 {
            let expected = "at least 1";
            return Err(Error::Setting { name: "rotated values", value: "0".into(), expected });
        }
        let kind = match base(k) {
            Some(base) => {
                let sign = |_| if rng.random::<bool>() { 1.0 } else { -1.0 };
                Kind::Hadamard { signs: (0..k).map(sign).collect(), base }
            }
            None => Kind::Dense(random_orthogonal(k, rng)),
        };
        Ok(Self { kind, k })
    }

    /// Whether R is a Hadamard matrix, which has a fast product.
    pub fn is_hadamard(&self) -> bool {
        matches!(self.kind, Kind::Hadamard { .. })
    }

    /// Replaces each row x by R x: `[rows, k]` inputs, or W by W Rᵀ. With the transposed view of a
    /// weight `[k, n]`, W becomes R W, which rotates the layer's outputs.
    ///
    /// # Errors
    /// Fails if the rows are not of k values.
    pub fn rotate(&self, mut rows: ArrayViewMut2<f32>) -> Result<()> {
        self.check(rows.ncols())?;
        for mut row in rows.rows_mut() {
            match &self.kind {
                Kind::Hadamard { signs, base } => {
                    row.iter_mut().zip(signs).for_each(|(v, s)| *v *= s);
                    self.product(row, &base.view())?;
                }
                Kind::Dense(q) => {
                    let turned = q.dot(&row);
                    row.assign(&turned);
                }
            }
        }
        Ok(())
    }

    /// Replaces each row x by Rᵀ x, the inverse of [`rotate`](Self::rotate).
    ///
    /// # Errors
    /// Fails if the rows are not of k values.
    pub fn rotate_back(&self, mut rows: ArrayViewMut2<f32>) -> Result<()> {
        self.check(rows.ncols())?;
        for mut row in rows.rows_mut() {
            match &self.kind {
                Kind::Hadamard { signs, base } => {
                    self.product(row.view_mut(), &base.t())?;
                    row.iter_mut().zip(signs).for_each(|(v, s)| *v *= s);
                }
                Kind::Dense(q) => {
                    let turned = q.t().dot(&row);
                    row.assign(&turned);
                }
            }
        }
        Ok(())
    }

    /// x ← (base ⊗ Sylvester's matrix) x / √k.
    fn product(&self, mut row: ArrayViewMut1<f32>, base: &ndarray::ArrayView2<f32>) -> Result<()> {
        let order = base.nrows();
        let mut values = row.to_vec();
        for part in values.chunks_exact_mut(self.k / order) {
            walsh_hadamard(part);
        }
        let values = Array2::from_shape_vec((order, self.k / order), values)
            .map_err(|e| refuse(e.to_string()))?;
        let values = if order == 1 { values } else { base.dot(&values) };
        let root = (self.k as f64).sqrt();
        row.iter_mut().zip(&values).for_each(|(to, v)| *to = (f64::from(*v) / root) as f32);
        Ok(())
    }

    fn check(&self, found: usize) -> Result<()> {
        if found == self.k {
            return Ok(());
        }
        Err(refuse(format!("rows of {found} values, expected {}", self.k)))
    }
}

fn refuse(message: String) -> Error {
    Error::Compression { method: "rotate a weight", message }
}

/// The orthogonal factor of a Gaussian matrix, uniform over all rotations and reflections: "How to
/// generate random matrices from the classical compact groups" (2007).
fn random_orthogonal(k: usize, rng: &mut impl Rng) -> Array2<f32> {
    let mut normal = || {
        let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
        ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
    };
    let qr = Mat::<f32>::from_fn(k, k, |_, _| normal()).qr();
    let q = qr.compute_Q();
    let signs = Array1::from_shape_fn(k, |j| 1f32.copysign(qr.R()[(j, j)]));
    Array2::from_shape_fn((k, k), |(i, j)| q[(i, j)] * signs[j])
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng};
    use super::*;

    /// E[(x − μ)⁴] / σ⁴.
    fn kurtosis(values: &Array2<f32>) -> f64 {
        let n = values.len() as f64;
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let moment = |p| values.iter().map(|&v| (f64::from(v) - mean).powi(p)).sum::<f64>() / n;
        moment(4) / moment(2).powi(2)
    }

    /// R Rᵀ = I for powers of two, orders 12, 20, 28, 36 and 76 times a power of two, and sizes
    /// without a Hadamard matrix; W Rᵀ (R x) = W x, and the inverse restores W.
    #[test]
    fn orthogonal() {
        let mut rng = rng(61);
        for (k, fast) in [
            (1, true),
            (2, true),
            (64, true),
            (12, true),
            (96, true),
            (40, true),
            (28, true),
            (224, true),
            (36, true),
            (152, true),
            (7, false),
            (30, false),
            (92, false),
        ] {
            let rotation = Rotation::random(k, &mut rng).unwrap();
            assert_eq!(rotation.is_hadamard(), fast, "{k}");
            let mut r = Array2::eye(k);
            rotation.rotate(r.view_mut()).unwrap();
            let off = r.dot(&r.t()) - Array2::<f32>::eye(k);
            assert!(off.iter().all(|v| v.abs() < 1e-5), "{k}");
            let (w, x) = (gaussian(5, k, &mut rng), gaussian(3, k, &mut rng));
            let (mut turned, mut inputs) = (w.clone(), x.clone());
            rotation.rotate(turned.view_mut()).unwrap();
            rotation.rotate(inputs.view_mut()).unwrap();
            let off = inputs.dot(&turned.t()) - x.dot(&w.t());
            assert!(off.iter().all(|v| v.abs() < 1e-4), "{k}");
            rotation.rotate_back(turned.view_mut()).unwrap();
            assert!((turned - &w).iter().all(|v| v.abs() < 1e-5), "{k}");
        }
    }

    /// Inputs with two outlier channels have the kurtosis of a normal distribution, 3, once rotated.
    #[test]
    fn outliers_are_spread() {
        let mut rng = rng(62);
        for k in [96, 100] {
            let mut x = gaussian(200, k, &mut rng);
            for j in [3, 50] {
                x.column_mut(j).mapv_inplace(|v| v * 30.0);
            }
            let before = kurtosis(&x);
            Rotation::random(k, &mut rng).unwrap().rotate(x.view_mut()).unwrap();
            let after = kurtosis(&x);
            println!("kurtosis k {k}: {before:.1} to {after:.2}");
            assert!(before > 50.0 && after < 6.0, "{k}: {before} {after}");
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        assert!(Rotation::random(0, &mut rng(1)).is_err());
        let rotation = Rotation::random(8, &mut rng(1)).unwrap();
        assert!(rotation.rotate(Array2::zeros((2, 7)).view_mut()).is_err());
        assert!(rotation.rotate_back(Array2::zeros((2, 9)).view_mut()).is_err());
    }
}
