//! A weight that was rounded to a grid.

use super::grid::{Grid, GroupParams};
use crate::error::{Error, Result};
use ndarray::{Array2, ArrayView2};

/// A weight `[n, k]` as codes, with a scale and a zero point per group of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantized {
    grid: Grid,
    n: usize,
    k: usize,
    codes: Vec<u8>,
    scales: Vec<f32>,
    zeros: Vec<u8>,
}

impl Quantized {
    /// A weight from its parts: `codes` `[n, k]`, `scales` and `zeros` `[n, groups]`, row by row.
    ///
    /// # Errors
    /// Fails if a part has another length, a code is too large, or a scale is 0 or not finite.
    pub fn new(
        grid: Grid,
        [n, k]: [usize; 2],
        codes: Vec<u8>,
        scales: Vec<f32>,
        zeros: Vec<u8>,
    ) -> Result<Self> {
        let groups = n.saturating_mul(grid.groups(k));
        for (part, len, expected) in [
            ("codes", codes.len(), n.saturating_mul(k)),
            ("scales", scales.len(), groups),
            ("zero points", zeros.len(), groups),
        ] {
            if len != expected {
                return Err(refuse(format!("{len} {part}, expected {expected}")));
            }
        }
        if let Some(code) = codes.iter().chain(&zeros).find(|&&c| c > grid.code_max()) {
            return Err(refuse(format!("code {code}, expected at most {}", grid.code_max())));
        }
        if let Some(scale) = scales.iter().find(|s| !s.is_finite() || **s == 0.0) {
            return Err(refuse(format!("scale {scale}, expected a finite number other than 0")));
        }
        Ok(Self { grid, n, k, codes, scales, zeros })
    }

    /// Codes and parameters of zeros, for a method that fills them column by column.
    pub(super) fn empty(grid: Grid, [n, k]: [usize; 2]) -> Self {
        let groups = n * grid.groups(k);
        let (codes, scales, zeros) = (vec![0; n * k], vec![1.0; groups], vec![0; groups]);
        Self { grid, n, k, codes, scales, zeros }
    }

    /// The format.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Rows n and columns k.
    pub fn shape(&self) -> [usize; 2] {
        [self.n, self.k]
    }

    /// The codes, `[n, k]`.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// The scales, `[n, groups]`.
    pub fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// The zero points, `[n, groups]`.
    pub fn zeros(&self) -> &[u8] {
        &self.zeros
    }

    /// The parameters of a group of a row.
    pub(super) fn params(&self, row: usize, group: usize) -> GroupParams {
        let at = row * self.grid.groups(self.k) + group;
        let (scale, zero) = (self.scales[at], self.zeros[at]);
        GroupParams { scale, zero, code_max: self.grid.code_max() }
    }

    pub(super) fn set_params(&mut self, row: usize, group: usize, params: GroupParams) {
        let at = row * self.grid.groups(self.k) + group;
        (self.scales[at], self.zeros[at]) = (params.scale, params.zero);
    }

    pub(super) fn set_code(&mut self, row: usize, column: usize, code: u8) {
        self.codes[row * self.k + column] = code;
    }

    /// The weight that the codes stand for, `[n, k]`.
    pub fn dequantize(&self) -> Array2<f32> {
        let len = self.grid.group_len(self.k);
        Array2::from_shape_fn((self.n, self.k), |(row, column)| {
            self.params(row, column / len).value(self.codes[row * self.k + column])
        })
    }

    /// The sum of the squared differences from the weight.
    ///
    /// # Errors
    /// Fails if the weight has another shape.
    pub fn error(&self, w: ArrayView2<f32>) -> Result<f64> {
        if w.dim() != (self.n, self.k) {
            let (found, expected) = (w.shape(), self.shape());
            return Err(refuse(format!("weight of shape {found:?}, expected {expected:?}")));
        }
        let square = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
        Ok(w.iter().zip(&self.dequantize()).map(square).sum())
    }
}

fn refuse(message: String) -> Error {
    Error::Compression { method: "read a quantised weight", message }
}

/// Fails unless the weight has elements and all of them are finite.
pub(super) fn check_weight(method: &'static str, w: ArrayView2<f32>) -> Result<()> {
    if w.is_empty() {
        let message = format!("weight of shape {:?}, expected at least one element", w.shape());
        return Err(Error::Compression { method, message });
    }
    if let Some(value) = w.iter().find(|v| !v.is_finite()) {
        let message = format!("weight has the value {value}, expected finite values");
        return Err(Error::Compression { method, message });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::grid::Scheme;
    use super::*;

    /// ŵ = (code − zero) · scale, the sum of squares, and parts that do not fit.
    #[test]
    fn parts() {
        let grid = Grid::new(4, Some(2), Scheme::Asymmetric).unwrap();
        let new = |codes: &[u8], scales: &[f32], zeros: &[u8]| {
            Quantized::new(grid, [1, 3], codes.to_vec(), scales.to_vec(), zeros.to_vec())
        };
        let good = new(&[0, 15, 8], &[1.0, -0.5], &[8, 7]).unwrap();
        assert_eq!(good.dequantize(), ndarray::arr2(&[[-8.0, 7.0, -0.5]]));
        assert!(good.error(Array2::zeros((3, 1)).view()).is_err());
        assert_eq!(good.error(Array2::zeros((1, 3)).view()).unwrap(), 64.0 + 49.0 + 0.25);
        assert!(new(&[0, 16, 8], &[1.0, 1.0], &[8, 8]).is_err());
        assert!(new(&[0, 1], &[1.0, 1.0], &[8, 8]).is_err());
        assert!(new(&[0, 1, 2], &[1.0], &[8, 8]).is_err());
        assert!(new(&[0, 1, 2], &[1.0, 0.0], &[8, 8]).is_err());
        assert!(new(&[0, 1, 2], &[1.0, f32::NAN], &[8, 8]).is_err());
    }
}
