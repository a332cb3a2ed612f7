//! The table of operators: ONNX's name, and the mapping that makes it ours.

use super::node::{NodeCx, Refusal};
use super::ops::{
    attention, control, conv, data, elementwise, flex_attention, linear, loss, microsoft,
    microsoft_attention, ml, normalization, pool, quantized, quantized_microsoft, recurrent,
    reduce, select, sequence, shape, signal, text, training,
};

/// Adds a node's operators to the graph, or says why it cannot.
pub(crate) type Map = fn(&mut NodeCx<'_>) -> Result<(), Refusal>;

/// The tables by operator domain; ONNX's own is the empty string.
const DOMAINS: &[(&str, &[(&str, Map)])] = &[
    ("", ONNX),
    ("ai.onnx.ml", ML),
    ("ai.onnx.preview", PREVIEW),
    ("ai.onnx.preview.training", TRAINING),
    ("com.microsoft", MICROSOFT),
];

/// Operators of classical machine learning, sorted by name.
const ML: &[(&str, Map)] = &[
    ("ArrayFeatureExtractor", ml::array_feature_extractor),
    ("Binarizer", ml::binarizer),
    ("FeatureVectorizer", ml::feature_vectorizer),
    ("Imputer", ml::imputer),
    ("LinearClassifier", ml::linear_classifier),
    ("LinearRegressor", ml::linear_regressor),
    ("Normalizer", ml::normalizer),
    ("OneHotEncoder", ml::one_hot_encoder),
    ("SVMClassifier", ml::svm_classifier),
    ("SVMRegressor", ml::svm_regressor),
    ("Scaler", ml::scaler),
    ("TreeEnsemble", ml::tree_ensemble),
    ("TreeEnsembleClassifier", ml::tree_ensemble_classifier),
    ("TreeEnsembleRegressor", ml::tree_ensemble_regressor),
];

/// Operators that are not settled yet, sorted by name.
const PREVIEW: &[(&str, Map)] = &[("FlexAttention", flex_attention::flex_attention)];

/// Steps of optimisers, sorted by name. `Gradient` is not one of them: it would need the
/// derivative of every operator.
const TRAINING: &[(&str, Map)] =
    &[("Adagrad", training::adagrad), ("Adam", training::adam), ("Momentum", training::momentum)];

/// Operators that ONNX Runtime's quantiser and transformer optimiser emit, sorted by name.
const MICROSOFT: &[(&str, Map)] = &[
    ("Attention", microsoft_attention::packed_attention),
    ("BiasAdd", microsoft::bias_add),
    ("BiasGelu", microsoft::gelu),
    ("DequantizeLinear", quantized::dequantize_linear),
    ("DynamicQuantizeMatMul", quantized_microsoft::dynamic_quantize_mat_mul),
    ("EmbedLayerNormalization", microsoft::embed_layer_norm),
    ("FastGelu", microsoft::fast_gelu),
    ("FusedConv", microsoft::fused_conv),
    ("FusedGemm", microsoft::fused_gemm),
    ("FusedMatMul", microsoft::fused_mat_mul),
    ("Gelu", microsoft::gelu),
    ("MatMulIntegerToFloat", quantized_microsoft::mat_mul_integer_to_float),
    ("MatMulNBits", quantized_microsoft::mat_mul_n_bits),
    ("MultiHeadAttention", microsoft_attention::multi_head_attention),
    ("QGemm", quantized_microsoft::q_gemm),
    ("QLinearAdd", quantized_microsoft::q_linear_add),
    ("QLinearAveragePool", quantized_microsoft::q_linear_average_pool),
    ("QLinearConcat", quantized_microsoft::q_linear_concat),
    ("QLinearGlobalAveragePool", quantized_microsoft::q_linear_global_average_pool),
    ("QLinearLeakyRelu", quantized_microsoft::q_linear_leaky_relu),
    ("QLinearMul", quantized_microsoft::q_linear_mul),
    ("QLinearSigmoid", quantized_microsoft::q_linear_sigmoid),
    ("QLinearSoftmax", quantized_microsoft::q_linear_softmax),
    ("QuantizeLinear", quantized::quantize_linear),
    ("QuickGelu", microsoft::quick_gelu),
    ("SkipLayerNormalization", microsoft::skip_layer_norm),
    ("SkipSimplifiedLayerNormalization", microsoft::skip_rms_norm),
];

/// Operators of ONNX's own domain, sorted by name.
const ONNX: &[(&str, Map)] = &[
    ("Abs", elementwise::abs),
    ("Acos", elementwise::acos),
    ("Acosh", elementwise::acosh),
    ("Add", elementwise::add),
    ("AffineGrid", signal::affine_grid),
    ("And", elementwise::and),
    ("ArgMax", reduce::arg_max),
    ("ArgMin", reduce::arg_min),
    ("Asin", elementwise::asin),
    ("Asinh", elementwise::asinh),
    ("Atan", elementwise::atan),
    ("Atanh", elementwise::atanh),
    ("Attention", attention::attention),
    ("AveragePool", pool::average_pool),
    ("BatchNormalization", normalization::batch_norm),
    ("Bernoulli", signal::bernoulli),
    ("BitCast", select::bit_cast),
    ("BitShift", elementwise::bit_shift),
    ("BitwiseAnd", elementwise::bitwise_and),
    ("BitwiseNot", elementwise::bitwise_not),
    ("BitwiseOr", elementwise::bitwise_or),
    ("BitwiseXor", elementwise::bitwise_xor),
    ("BlackmanWindow", signal::blackman),
    ("Cast", data::cast),
    ("CastLike", data::cast_like),
    ("CausalConvWithState", attention::causal_conv),
    ("Ceil", elementwise::ceil),
    ("Celu", elementwise::celu),
    ("CenterCropPad", signal::center_crop_pad),
    ("Clip", elementwise::clip),
    ("Col2Im", signal::col2im),
    ("Compress", select::compress),
    ("Concat", shape::concat),
    ("ConcatFromSequence", sequence::concat),
    ("Constant", data::constant),
    ("ConstantOfShape", data::constant_of_shape),
    ("Conv", conv::conv),
    ("ConvInteger", quantized::conv_integer),
    ("ConvTranspose", conv::conv_transpose),
    ("Cos", elementwise::cos),
    ("Cosh", elementwise::cosh),
    ("CumProd", select::cum_prod),
    ("CumSum", select::cum_sum),
    ("DFT", signal::dft),
    ("DeformConv", conv::deform_conv),
    ("DepthToSpace", shape::depth_to_space),
    ("DequantizeLinear", quantized::dequantize_linear),
    ("Det", linear::det),
    ("Div", elementwise::div),
    ("Dropout", loss::dropout),
    ("DynamicQuantizeLinear", quantized::dynamic_quantize_linear),
    ("Einsum", signal::einsum),
    ("Elu", elementwise::elu),
    ("Equal", elementwise::equal),
    ("Erf", elementwise::erf),
    ("Exp", elementwise::exp),
    ("Expand", shape::expand),
    ("EyeLike", select::eye_like),
    ("Flatten", shape::flatten),
    ("Floor", elementwise::floor),
    ("GRU", recurrent::gru),
    ("Gather", data::gather),
    ("GatherElements", select::gather_elements),
    ("GatherND", select::gather_nd),
    ("Gelu", elementwise::gelu),
    ("Gemm", linear::gemm),
    ("GlobalAveragePool", pool::global_average_pool),
    ("GlobalLpPool", pool::global_lp_pool),
    ("GlobalMaxPool", pool::global_max_pool),
    ("Greater", elementwise::greater),
    ("GreaterOrEqual", elementwise::greater_or_equal),
    ("GridSample", signal::grid_sample),
    ("GroupNormalization", normalization::group_norm),
    ("HammingWindow", signal::hamming),
    ("HannWindow", signal::hann),
    ("HardSigmoid", elementwise::hard_sigmoid),
    ("HardSwish", elementwise::hard_swish),
    ("Hardmax", select::hardmax),
    ("Identity", data::identity),
    ("If", control::if_),
    ("InstanceNormalization", normalization::instance_norm),
    ("IsInf", elementwise::is_inf),
    ("IsNaN", elementwise::is_nan),
    ("LRN", normalization::lrn),
    ("LSTM", recurrent::lstm),
    ("LayerNormalization", normalization::layer_norm),
    ("LeakyRelu", elementwise::leaky_relu),
    ("Less", elementwise::less),
    ("LessOrEqual", elementwise::less_or_equal),
    ("LinearAttention", attention::linear_attention),
    ("Log", elementwise::log),
    ("LogSoftmax", reduce::log_softmax),
    ("Loop", control::loop_),
    ("LpNormalization", normalization::lp_norm),
    ("LpPool", pool::lp_pool),
    ("MatMul", linear::mat_mul),
    ("MatMulInteger", quantized::mat_mul_integer),
    ("Max", elementwise::max),
    ("MaxPool", pool::max_pool),
    ("MaxRoiPool", signal::max_roi_pool),
    ("MaxUnpool", pool::max_unpool),
    ("Mean", elementwise::mean),
    ("MeanVarianceNormalization", normalization::mean_variance_norm),
    ("MelWeightMatrix", signal::mel_weights),
    ("Min", elementwise::min),
    ("Mish", elementwise::mish),
    ("Mod", elementwise::modulo),
    ("Mul", elementwise::mul),
    ("Multinomial", signal::multinomial),
    ("Neg", elementwise::neg),
    ("NegativeLogLikelihoodLoss", loss::negative_log_likelihood),
    ("NonMaxSuppression", signal::non_max_suppression),
    ("NonZero", select::non_zero),
    ("Not", elementwise::not),
    ("OneHot", select::one_hot),
    ("Optional", sequence::optional),
    ("OptionalGetElement", sequence::optional_get),
    ("OptionalHasElement", sequence::optional_has),
    ("Or", elementwise::or),
    ("PRelu", elementwise::p_relu),
    ("Pad", shape::pad),
    ("Pow", elementwise::pow),
    ("QLinearConv", quantized::q_linear_conv),
    ("QLinearMatMul", quantized::q_linear_mat_mul),
    ("QuantizeLinear", quantized::quantize_linear),
    ("RMSNormalization", normalization::rms_norm),
    ("RNN", recurrent::rnn),
    ("RandomNormal", signal::random_normal),
    ("RandomNormalLike", signal::random_normal_like),
    ("RandomUniform", signal::random_uniform),
    ("RandomUniformLike", signal::random_uniform_like),
    ("Range", data::range),
    ("Reciprocal", elementwise::reciprocal),
    ("ReduceL1", reduce::l1),
    ("ReduceL2", reduce::l2),
    ("ReduceLogSum", reduce::log_sum),
    ("ReduceLogSumExp", reduce::log_sum_exp),
    ("ReduceMax", reduce::max),
    ("ReduceMean", reduce::mean),
    ("ReduceMin", reduce::min),
    ("ReduceProd", reduce::prod),
    ("ReduceSum", reduce::sum),
    ("ReduceSumSquare", reduce::sum_square),
    ("RegexFullMatch", text::regex_full_match),
    ("Relu", elementwise::relu),
    ("Reshape", shape::reshape),
    ("Resize", shape::resize),
    ("ReverseSequence", select::reverse_sequence),
    ("RoiAlign", signal::roi_align),
    ("RotaryEmbedding", attention::rotary_embedding),
    ("Round", elementwise::round),
    ("STFT", signal::stft),
    ("Scan", control::scan),
    ("Scatter", select::scatter),
    ("ScatterElements", select::scatter_elements),
    ("ScatterND", select::scatter_nd),
    ("Selu", elementwise::selu),
    ("SequenceAt", sequence::at),
    ("SequenceConstruct", sequence::construct),
    ("SequenceEmpty", sequence::empty),
    ("SequenceErase", sequence::erase),
    ("SequenceInsert", sequence::insert),
    ("SequenceLength", sequence::length),
    ("SequenceMap", control::sequence_map),
    ("Shape", shape::shape),
    ("Shrink", elementwise::shrink),
    ("Sigmoid", elementwise::sigmoid),
    ("Sign", elementwise::sign),
    ("SimplifiedLayerNormalization", normalization::rms_norm),
    ("Sin", elementwise::sin),
    ("Sinh", elementwise::sinh),
    ("Size", shape::size),
    ("Slice", shape::slice),
    ("Softmax", reduce::softmax),
    ("SoftmaxCrossEntropyLoss", loss::softmax_cross_entropy),
    ("Softplus", elementwise::softplus),
    ("Softsign", elementwise::softsign),
    ("SpaceToDepth", shape::space_to_depth),
    ("Split", shape::split),
    ("SplitToSequence", sequence::split),
    ("Sqrt", elementwise::sqrt),
    ("Squeeze", shape::squeeze),
    ("StringConcat", text::concat),
    ("StringNormalizer", text::normalizer),
    ("StringSplit", text::split),
    ("Sub", elementwise::sub),
    ("Sum", elementwise::sum),
    ("Swish", elementwise::swish),
    ("Tan", elementwise::tan),
    ("Tanh", elementwise::tanh),
    ("TensorScatter", signal::tensor_scatter),
    ("TfIdfVectorizer", text::tf_idf),
    ("ThresholdedRelu", elementwise::thresholded_relu),
    ("Tile", shape::tile),
    ("TopK", select::top_k),
    ("Transpose", shape::transpose),
    ("Trilu", select::trilu),
    ("Unique", select::unique),
    ("Unsqueeze", shape::unsqueeze),
    ("Upsample", shape::upsample),
    ("Where", elementwise::where_),
    ("Xor", elementwise::xor),
];

/// The mapping of an operator.
pub(crate) fn find(domain: &str, op_type: &str) -> Option<Map> {
    let (_, table) = DOMAINS.iter().find(|(name, _)| *name == domain)?;
    table.binary_search_by_key(&op_type, |(name, _)| name).ok().map(|i| table[i].1)
}

/// The operators that can be mapped, with their domain, sorted; ONNX's own domain is the empty
/// string.
///
/// ```
/// assert!(lgp_inference::supported_operators().any(|op| op == ("", "Conv")));
/// ```
pub fn supported_operators() -> impl Iterator<Item = (&'static str, &'static str)> {
    DOMAINS.iter().flat_map(|(domain, table)| table.iter().map(|(name, _)| (*domain, *name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted() {
        assert!(DOMAINS.is_sorted_by_key(|(domain, _)| domain));
        assert!(DOMAINS.iter().all(|(_, table)| table.is_sorted_by_key(|(name, _)| name)));
        assert!(find("", "Conv").is_some());
        assert!(find("", "conv").is_none());
        assert!(find("com.unknown", "Conv").is_none());
    }
}
