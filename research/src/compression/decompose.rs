//! Decompositions of weight matrices and tensors into smaller factors: SVD, Tucker, tensor train
//! and CP, the choice of their ranks, and the factor kernels they give for a convolution.
//! Shapes follow NumPy's order, and names follow TensorLy.

mod check;
mod convolution;
mod cp;
mod linear_algebra;
mod rank;
mod svd;
mod tensor;
mod tensor_train;
mod tucker;

pub use convolution::{
    ConvFactor, ConvFactors, channel_svd, channel_svd_cost, conv_cp, conv_cp_cost,
    conv_tensor_train, conv_tucker2, spatial_svd, spatial_svd_cost,
};
pub use cp::{Cp, CpConfig, cp_als};
pub use rank::{
    Evbmf, FactorCost, RankChoice, RankLimit, evbmf, rank_by_budget, rank_by_cost, rank_by_energy,
    rank_by_error,
};
pub use svd::{
    LowRank, Svd, WhitenedLowRank, svd, tail_error, truncated_svd, weighted_relative_error,
    whitened_svd,
};
pub use tensor_train::{
    TensorTrain, TensorTrainMatrix, tensor_train_matrix, tensor_train_matrix_parameters, tt_svd,
    tt_svd_to_error,
};
pub use tucker::{Tucker, hooi, hosvd};
