//! The mappings of ONNX's operators, one file per family. A mapping reads the attributes that its
//! opset knows and adds one or more of `lgp-compute`'s operators.

pub(crate) mod attention;
pub(crate) mod block_quantized;
pub(crate) mod control;
pub(crate) mod conv;
pub(crate) mod data;
pub(crate) mod elementwise;
pub(crate) mod flex_attention;
pub(crate) mod linear;
pub(crate) mod loss;
pub(crate) mod microsoft;
pub(crate) mod microsoft_attention;
pub(crate) mod microsoft_cache;
pub(crate) mod microsoft_embed;
pub(crate) mod microsoft_images;
pub(crate) mod ml;
pub(crate) mod normalization;
pub(crate) mod pool;
pub(crate) mod quantized;
pub(crate) mod quantized_microsoft;
pub(crate) mod recurrent;
pub(crate) mod reduce;
pub(crate) mod select;
pub(crate) mod sequence;
pub(crate) mod shape;
pub(crate) mod signal;
pub(crate) mod text;
pub(crate) mod training;

#[cfg(test)]
mod microsoft_tests;
