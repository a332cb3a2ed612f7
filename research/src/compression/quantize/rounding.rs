//! What a method that rounds a weight to a grid is.

use super::grid::Grid;
use super::quantized::Quantized;
use crate::compression::inputs::Inputs;
use crate::error::{Error, Result};
use ndarray::ArrayView2;

/// A method that rounds a weight to a grid.
pub trait Rounding: std::fmt::Debug + Sync {
    /// The name in settings and reports.
    fn name(&self) -> &'static str;

    /// Rounds the weight `[n, k]`; `inputs` are statistics of the layer's inputs.
    ///
    /// # Errors
    /// Fails if the weight is empty or has values that are not finite, if the method needs
    /// statistics and has none, or if they are of another width than k.
    fn quantize(
        &self,
        w: ArrayView2<f32>,
        grid: &Grid,
        inputs: Option<&Inputs>,
    ) -> Result<Quantized>;
}

/// The statistics that a method needs, for weights of k columns.
pub(super) fn needed<'a>(
    method: &'static str,
    inputs: Option<&'a Inputs>,
    k: usize,
) -> Result<&'a Inputs> {
    let Some(inputs) = inputs else {
        let message = "statistics of the inputs are missing, expected a Hessian".to_string();
        return Err(Error::Compression { method, message });
    };
    if inputs.width() != k {
        let message = format!("inputs have width {}, expected {k}", inputs.width());
        return Err(Error::Compression { method, message });
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::super::ROUNDINGS;
    use super::super::fixtures::{ar1, gaussian, rng};
    use super::super::grid::Scheme;
    use super::*;
    use crate::compression::inputs::output_error;

    /// On correlated inputs no method has more error than round to nearest,
    /// which is the first of the table.
    #[test]
    fn table() {
        let (w, h) = (gaussian(16, 64, &mut rng(121)), ar1(64, 0.7));
        let inputs = Inputs::from_hessian(h.clone()).unwrap();
        let grid = Grid::new(4, Some(32), Scheme::Asymmetric).unwrap();
        let errors: Vec<f64> = ROUNDINGS
            .iter()
            .map(|rounding| {
                let quantized = rounding.quantize(w.view(), &grid, Some(&inputs)).unwrap();
                assert_eq!((quantized.shape(), quantized.grid()), ([16, 64], &grid));
                output_error(w.view(), quantized.dequantize().view(), &h).unwrap()
            })
            .collect();
        let names: Vec<&str> = ROUNDINGS.iter().map(|rounding| rounding.name()).collect();
        println!("{names:?} {:?}", errors.iter().map(|e| e / errors[0]).collect::<Vec<_>>());
        assert!(errors.iter().all(|&error| error <= errors[0]), "{errors:?}");
        assert_eq!(names, ["nearest", "gptq", "qronos", "hqq", "auto_round"]);
    }
}
