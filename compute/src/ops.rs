//! The table of operators. Each is a file `ops/<op>.rs`, with its CPU body and its kernels in a
//! folder beside the file.
//!
//! | operators | dtypes |
//! |---|---|
//! | convolution, products, recurrent layers, attention, average, Lp and global pooling, norms, softmax, losses, dropout, most unary functions, linear resizing | f32, f64; f16 and bf16 through f32 |
//! | binary arithmetic and comparison, `Clip`, max pooling, reductions, `ArgMax`, `Relu`, `Neg`, `Abs`, `Sign` | the same and all integers |
//! | `Equal` | those of binary arithmetic, and bool |
//! | channels-last convolutions and pools, packed, stored and sparse products and `Sdpa`, which passes put in place of others | f32; convolutions and pools also bf16 |
//! | quantised convolutions, products, pools, sums and tables, which passes put in place of others | i8, u8 |
//! | `LinearAttention`, `GroupQueryAttention` | f32; f16 and bf16 through f32 |
//! | `Range` | f32, f64, i16, i32, i64 |
//! | `QuantizeLinear`, `DequantizeLinear` | integers of 2 to 16 bits (i32 back only) and floats of 4 and 8 bits from and to f32, f16, bf16 |
//! | `IndexOf` | every dtype but complex numbers |
//! | `MatMulInteger`, `ConvInteger`, `DynamicQuantizeLinear` | i8, u8 |
//! | `And`, `Or`, `Xor`, `Not` | bool |
//! | `Cast` | every dtype but complex numbers |
//! | `Where`, nearest resizing, and all that moves elements or shapes | every dtype |
//!
//! Integer arithmetic wraps; dividing an integer by zero is an error. A constant that is an input
//! of an operator in newer opsets and an attribute in older ones is an `Option` field, which
//! replaces the absent input.

mod affine_grid;
mod align;
mod arg_reduce;
mod attention;
mod attention_mask;
mod batch_norm;
mod binary;
mod bit_cast;
mod bitwise;
mod cast;
mod causal_conv;
mod center_crop_pad;
mod channel_shuffle;
mod class_scores;
mod clip;
mod col2im;
mod compress;
mod concat;
mod constant_of_shape;
mod conv;
mod conv_integer;
mod conv_nhwc;
mod conv_transpose;
mod cumulative;
mod deform_conv;
mod depth_space;
mod dequantize_linear;
mod det;
mod dropout;
mod dynamic_quantize_linear;
mod einsum;
mod expand;
mod eye_like;
mod flatten;
mod fourier;
mod gather;
mod gather_elements;
mod gather_nd;
mod gemm;
mod global_pool;
mod grid_sample;
mod group_norm;
mod group_query_attention;
mod hardmax;
mod identity;
mod index_of;
mod instance_norm;
mod inverse;
mod layer_norm;
mod layer_norm_stats;
mod linear_attention;
mod lrn;
mod maps;
mod matmul;
mod matmul_bits;
mod matmul_integer;
mod matmul_packed;
mod matmul_sparse;
mod matmul_stored;
mod max_pool_indices;
mod max_unpool;
mod mean;
mod mel_weights;
mod ngram_repeat_block;
mod nll_loss;
mod non_max_suppression;
mod non_zero;
mod one_hot;
mod optional;
mod pad;
mod pool;
mod pool_nhwc;
mod pooling;
mod q_conv;
mod q_elementwise;
mod q_matmul;
mod q_pool;
mod quantize_linear;
mod random;
mod range;
mod recurrent;
mod reduce;
mod relative_position_bias;
mod reshape;
mod resize;
mod reverse_sequence;
mod rms_norm;
mod roi_align;
mod rotary_embedding;
mod scatter;
mod sdpa;
mod sequence;
mod shape;
mod size;
mod slice;
mod softmax;
mod split;
mod squeeze;
mod svm;
mod tensor_scatter;
mod text;
mod tile;
mod top_k;
mod transpose;
mod tree_ensemble;
mod trilu;
mod unary;
mod unique;
mod unpack_bits;
mod unsqueeze;
mod where_;
mod window_function;

#[cfg(test)]
mod tests;

pub use crate::post_transform::PostTransform;
pub use crate::quantized::Quant;
pub use crate::window::Pads;
pub use affine_grid::AffineGrid;
pub use align::Align;
pub use arg_reduce::{ArgKind, ArgReduce};
pub use attention::{Attention, Scores};
pub use attention_mask::AttentionMask;
pub use batch_norm::BatchNorm;
pub use binary::{Binary, BinaryKind};
pub use bit_cast::BitCast;
pub use bitwise::{Bitwise, BitwiseKind, BitwiseNot};
pub use cast::{Cast, CastAs};
pub use causal_conv::CausalConv;
pub use center_crop_pad::CenterCropPad;
pub use channel_shuffle::ChannelShuffle;
pub use class_scores::{ClassRule, ClassScores};
pub use clip::Clip;
pub use col2im::Col2Im;
pub use compress::Compress;
pub use concat::Concat;
pub use constant_of_shape::ConstantOfShape;
pub use conv::Conv;
pub use conv_integer::ConvInteger;
pub use conv_nhwc::{ConvGeometry, ConvHints, ConvNhwc};
pub use conv_transpose::ConvTranspose;
pub use cumulative::Cumulative;
pub use deform_conv::DeformConv;
pub use depth_space::{DepthMode, DepthToSpace, SpaceToDepth};
pub use dequantize_linear::DequantizeLinear;
pub use det::Det;
pub use dropout::Dropout;
pub use dynamic_quantize_linear::DynamicQuantizeLinear;
pub use einsum::Einsum;
pub use expand::Expand;
pub use eye_like::EyeLike;
pub use flatten::Flatten;
pub use fourier::{Dft, Stft};
pub use gather::Gather;
pub use gather_elements::GatherElements;
pub use gather_nd::GatherNd;
pub use gemm::Gemm;
pub use global_pool::GlobalPool;
pub use grid_sample::{GridSample, SampleMode, SamplePadding};
pub use group_norm::GroupNorm;
pub use group_query_attention::GroupQueryAttention;
pub use hardmax::Hardmax;
pub use identity::Identity;
pub use index_of::IndexOf;
pub use instance_norm::InstanceNorm;
pub use inverse::Inverse;
pub use layer_norm::LayerNorm;
pub use layer_norm_stats::LayerNormStats;
pub use linear_attention::LinearAttention;
pub use lrn::Lrn;
pub use maps::{CastMap, DictVectorizer, ZipMap};
pub use matmul::MatMul;
pub use matmul_bits::{MatMulBits, Zeros};
pub use matmul_integer::MatMulInteger;
pub use matmul_packed::MatMulPacked;
pub use matmul_sparse::MatMulSparse;
pub use matmul_stored::MatMulStored;
pub use max_pool_indices::MaxPoolIndices;
pub use max_unpool::MaxUnpool;
pub use mean::Mean;
pub use mel_weights::MelWeights;
pub use ngram_repeat_block::NGramRepeatBlock;
pub use nll_loss::{NllLoss, Reduction};
pub use non_max_suppression::NonMaxSuppression;
pub use non_zero::NonZero;
pub use one_hot::OneHot;
pub use optional::{Optional, OptionalGetElement, OptionalHasElement};
pub use pad::{Pad, PadMode};
pub use pool::Pool;
pub use pool_nhwc::{GlobalPoolNhwc, PoolNhwc};
pub use pooling::{GlobalPoolKind, PoolKind};
pub use q_conv::{QConv, QConvParts};
pub use q_elementwise::{QAdd, QLookup, QMul};
pub use q_matmul::{QKind, QMatMul, QMatMulParts};
pub use q_pool::{QGlobalAveragePool, QMaxPool};
pub use quantize_linear::QuantizeLinear;
pub use random::{Multinomial, Random, RandomKind};
pub use range::Range;
pub use recurrent::{Activation, Cell, Direction, Recurrent, RecurrentPacked};
pub use reduce::{Reduce, ReduceKind};
pub use relative_position_bias::RelativePositionBias;
pub use reshape::Reshape;
pub use resize::{AspectRatio, CoordinateMode, NearestRounding, Resize, ResizeMode};
pub use reverse_sequence::ReverseSequence;
pub use rms_norm::RmsNorm;
pub use roi_align::{MaxRoiPool, RoiAlign};
pub use rotary_embedding::RotaryEmbedding;
pub use scatter::{ScatterElements, ScatterNd, ScatterReduction};
pub use sdpa::Sdpa;
pub use sequence::{
    ConcatFromSequence, SequenceAt, SequenceConstruct, SequenceEmpty, SequenceErase,
    SequenceInsert, SequenceLength, SplitToSequence,
};
pub use shape::Shape;
pub use size::Size;
pub use slice::Slice;
pub use softmax::Softmax;
pub use split::Split;
pub use squeeze::Squeeze;
pub use svm::{Decision as SvmDecision, Kernel as SvmKernel, Svm};
pub use tensor_scatter::TensorScatter;
pub use text::{
    CaseChange, NGrams, RegexFullMatch, StringConcat, StringNormalizer, StringSplit,
    TfIdfVectorizer, TfIdfWeighting,
};
pub use tile::Tile;
pub use top_k::TopK;
pub use transpose::Transpose;
pub use tree_ensemble::{
    Aggregate as TreeAggregate, Branch as TreeBranch, Child as TreeChild, Split as TreeSplit,
    TreeEnsemble, Trees,
};
pub use trilu::Trilu;
pub(crate) use unary::math;
pub use unary::{Unary, UnaryKind};
pub use unique::Unique;
pub use unpack_bits::UnpackBits;
pub use unsqueeze::Unsqueeze;
pub use where_::Where;
pub use window_function::{WindowFunction, WindowKind};
