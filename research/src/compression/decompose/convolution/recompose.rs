//! Multiplies a chain of convolutions back into one kernel.

use ndarray::{Array4, ArrayView4, Axis, Slice};

use super::super::check::{bad, check_values};
use super::{ConvFactor, ConvFactors};
use crate::error::Result;

const METHOD: &str = "recompose a convolution";

impl ConvFactors {
    /// The kernel [out, in/groups, kh, kw] that the factors multiply to.
    ///
    /// # Errors
    ///
    /// `Compression` if there are no factors, or if one does not take as many channels as its
    /// predecessor gives.
    pub fn recompose(&self) -> Result<Array4<f32>> {
        let first = self.factors.first();
        let first = first.ok_or_else(|| bad(METHOD, "0 factors, expected at least 1"))?;
        let (_, inputs, _, _) = channels(first)?;
        // The identity on the layer's inputs, so that the first factor is composed as the others.
        let identity = |(o, i, _, _)| f64::from(u8::from(o == i));
        let mut product = Array4::from_shape_fn((inputs, inputs, 1, 1), identity);
        for factor in &self.factors {
            product = compose(&product, factor)?;
        }
        let (outputs, _, height, width) = product.dim();
        let groups = self.groups;
        if groups == 0 || !outputs.is_multiple_of(groups) || !inputs.is_multiple_of(groups) {
            let message = format!("{groups} groups, expected a divisor of {outputs} and {inputs}");
            return Err(bad(METHOD, message));
        }
        let (share_out, share_in) = (outputs / groups, inputs / groups);
        Ok(Array4::from_shape_fn((outputs, share_in, height, width), |(o, i, h, w)| {
            product[[o, o / share_out * share_in + i, h, w]] as f32
        }))
    }

    /// The count of numbers in the kernels.
    pub fn parameters(&self) -> usize {
        self.factors.iter().map(|factor| factor.kernel.len()).sum()
    }

    /// The multiply-adds for each output position of the layer, under the layer's `stride` along
    /// the height and the width. A factor that runs before a stride has so many more positions.
    pub fn multiply_adds(&self, stride: [usize; 2]) -> usize {
        let mut positions = 1;
        let mut total = 0;
        for factor in self.factors.iter().rev() {
            total += factor.kernel.len() * positions;
            for (taken, step) in factor.spatial.iter().zip(stride) {
                positions *= if *taken { step } else { 1 };
            }
        }
        total
    }
}

/// The outputs, all inputs, outputs of a group and inputs of a group of `factor`.
fn channels(factor: &ConvFactor) -> Result<(usize, usize, usize, usize)> {
    check_values(METHOD, factor.kernel.shape(), factor.kernel.iter().copied())?;
    let (outputs, share_in, _, _) = factor.kernel.dim();
    let groups = factor.groups;
    if groups == 0 || !outputs.is_multiple_of(groups) {
        return Err(bad(
            METHOD,
            format!("{groups} groups, expected a divisor of {outputs} outputs"),
        ));
    }
    Ok((outputs, share_in * groups, outputs / groups, share_in))
}

/// The kernel of `product` [c, in, kh, kw] followed by `factor`: C[o, i, p + q] is the sum over the
/// channels m of factor[o, m, q]·product[m, i, p].
fn compose(product: &Array4<f64>, factor: &ConvFactor) -> Result<Array4<f64>> {
    let (outputs, expected, share_out, share_in) = channels(factor)?;
    let (found, inputs, height, width) = product.dim();
    if found != expected {
        return Err(bad(METHOD, format!("{found} channels, expected {expected} of the factor")));
    }
    let (_, _, taps_h, taps_w) = factor.kernel.dim();
    let shape = (outputs, inputs, height + taps_h - 1, width + taps_w - 1);
    let mut composed = Array4::<f64>::zeros(shape);
    for ((o, m, h, w), value) in factor.kernel.indexed_iter() {
        let source = product.index_axis(Axis(0), o / share_out * share_in + m);
        let mut target = composed.index_axis_mut(Axis(0), o);
        let mut target = target.slice_axis_mut(Axis(1), Slice::from(h..h + height));
        let mut target = target.slice_axis_mut(Axis(2), Slice::from(w..w + width));
        target.scaled_add(f64::from(*value), &source);
    }
    Ok(composed)
}

/// ‖`kernel` − `other`‖/‖`kernel`‖, or 0 if both are 0.
pub(super) fn relative_error(kernel: ArrayView4<f32>, other: ArrayView4<f32>) -> f64 {
    let widen = |kernel: ArrayView4<f32>| kernel.mapv(f64::from).into_dyn();
    super::super::tensor::relative_error(widen(kernel).view(), widen(other).view())
}
