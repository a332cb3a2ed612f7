//! The costs of the convolution's factors for each unit of rank, for the choice of a rank.

use super::super::rank::FactorCost;

/// The parameters, and the multiply-adds for each output position, of [`super::spatial_svd`] of a
/// kernel of shape `kernel` [out, in/groups, kh, kw], under the layer's stride.
pub fn spatial_svd_cost(kernel: [usize; 4], groups: usize, stride: [usize; 2]) -> [FactorCost; 2] {
    let [outputs, share_in, height, width] = kernel;
    let (vertical, horizontal) = (share_in * groups * height, outputs * width);
    costs(kernel, vertical + horizontal, vertical * stride[1] + horizontal)
}

/// The parameters, and the multiply-adds for each output position, of [`super::channel_svd`] of a
/// kernel of shape `kernel` [out, in/groups, kh, kw]. The stride does not change them.
pub fn channel_svd_cost(kernel: [usize; 4], groups: usize) -> [FactorCost; 2] {
    let [outputs, share_in, height, width] = kernel;
    let per_rank = share_in * groups * height * width + outputs;
    costs(kernel, per_rank, per_rank)
}

/// The parameters, and the multiply-adds for each output position, of [`super::conv_cp`] of a
/// kernel of shape `kernel` [out, in/groups, kh, kw], under the layer's stride.
pub fn conv_cp_cost(kernel: [usize; 4], groups: usize, stride: [usize; 2]) -> [FactorCost; 2] {
    let [outputs, share_in, height, width] = kernel;
    let (input, vertical, horizontal) = (share_in * groups, groups * height, groups * width);
    let multiply_adds = input * stride[0] * stride[1] + vertical * stride[1] + horizontal + outputs;
    costs(kernel, input + vertical + horizontal + outputs, multiply_adds)
}

/// A dense kernel has as many multiply-adds for each output position as parameters.
fn costs(kernel: [usize; 4], parameters: usize, multiply_adds: usize) -> [FactorCost; 2] {
    let dense = kernel.iter().product();
    [FactorCost { dense, per_rank: parameters }, FactorCost { dense, per_rank: multiply_adds }]
}
