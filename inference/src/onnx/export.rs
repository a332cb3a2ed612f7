//! Writes a [`Model`] as ONNX bytes that other engines read.

use super::dtype;
use super::proto::attribute_proto::AttributeType;
use super::proto::tensor_shape_proto::{Dimension, dimension};
use super::proto::type_proto::{Optional, Sequence, Value};
use super::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use crate::error::{Error, Result};
use crate::model::{Attr, Model, ModelNode, Subgraph, ValueSpec};
use lgp_memory::{Dim, SymShape, Tensor, TensorType, ValueKind};
use prost::Message;
use prost::bytes::Bytes;
use std::collections::BTreeMap;

/// The largest message that protocol buffers allow.
const MAX_BYTES: usize = 0x7fff_ffff;

impl Model {
    /// The model as the bytes of an ONNX file, weights included.
    ///
    /// # Errors
    /// [`Error::Export`] when the model has attributes that were read by name only (such as a list
    /// of graphs), or passes the 2 GiB that such a file can hold.
    pub fn to_onnx(&self) -> Result<Vec<u8>> {
        encoded(&self.to_proto()?)
    }

    pub(super) fn to_proto(&self) -> Result<ModelProto> {
        let graph = GraphProto {
            name: Some(self.name.clone()),
            node: self.nodes.iter().map(node).collect::<Result<_>>()?,
            initializer: initializers(&self.initializers)?,
            input: self.inputs.iter().chain(&self.defaults).map(value).collect::<Result<_>>()?,
            output: self.outputs.iter().map(value).collect::<Result<_>>()?,
            ..GraphProto::default()
        };
        let opset_import = self.opsets.iter().map(|(domain, version)| OperatorSetIdProto {
            domain: Some(domain.clone()),
            version: Some(*version),
        });
        let metadata_props = self.metadata.iter().map(|(key, value)| StringStringEntryProto {
            key: Some(key.clone()),
            value: Some(value.clone()),
        });
        Ok(ModelProto {
            ir_version: Some(self.ir_version),
            producer_name: Some(self.producer.clone()),
            opset_import: opset_import.collect(),
            metadata_props: metadata_props.collect(),
            graph: Some(graph),
            ..ModelProto::default()
        })
    }
}

/// The message's bytes; an error where they exceed [`MAX_BYTES`].
pub(super) fn encoded(proto: &ModelProto) -> Result<Vec<u8>> {
    let len = proto.encoded_len();
    if len > MAX_BYTES {
        let message = format!("it takes {len} bytes, expected at most {MAX_BYTES}");
        return Err(Error::Export { message });
    }
    Ok(proto.encode_to_vec())
}

fn node(node: &ModelNode) -> Result<NodeProto> {
    let attribute = node.attributes.iter().map(|(name, value)| {
        attribute(name, value).map_err(|what| Error::Export {
            message: format!("attribute '{name}' of node '{}' is a {what}", node.name),
        })
    });
    Ok(NodeProto {
        input: node.inputs.clone(),
        output: node.outputs.clone(),
        name: Some(node.name.clone()),
        op_type: Some(node.op_type.clone()),
        domain: Some(node.domain.clone()),
        attribute: attribute.collect::<Result<_>>()?,
        ..NodeProto::default()
    })
}

/// The attribute as a message; the error tells what cannot be written.
fn attribute(name: &str, value: &Attr) -> Result<AttributeProto, String> {
    let mut out = AttributeProto { name: Some(name.to_owned()), ..AttributeProto::default() };
    let kind = match value {
        Attr::Int(i) => {
            out.i = Some(*i);
            AttributeType::Int
        }
        Attr::Float(f) => {
            out.f = Some(*f);
            AttributeType::Float
        }
        Attr::Str(s) => {
            out.s = Some(s.as_bytes().to_vec());
            AttributeType::String
        }
        Attr::Ints(v) => {
            out.ints.clone_from(v);
            AttributeType::Ints
        }
        Attr::Floats(v) => {
            out.floats.clone_from(v);
            AttributeType::Floats
        }
        Attr::Strs(v) => {
            out.strings = v.iter().map(|s| s.as_bytes().to_vec()).collect();
            AttributeType::Strings
        }
        Attr::Tensor(t) => {
            out.t = Some(tensor("", t).map_err(|e| e.to_string())?);
            AttributeType::Tensor
        }
        Attr::Graph(graph) => {
            out.g = Some(subgraph(graph).map_err(|e| e.to_string())?);
            AttributeType::Graph
        }
        Attr::Type(kind, ty) => {
            out.tp = Some(type_proto(*kind, ty).map_err(|e| e.to_string())?);
            AttributeType::TypeProto
        }
        Attr::Other(what) => return Err((*what).to_owned()),
    };
    out.r#type = Some(kind.into());
    Ok(out)
}

fn element_type(dtype: lgp_memory::DType) -> Result<i32> {
    dtype::to_onnx(dtype)
        .ok_or_else(|| Error::Export { message: format!("dtype {dtype} has no ONNX number") })
}

fn size(n: usize) -> Result<i64> {
    i64::try_from(n).map_err(|_| Error::Export { message: format!("dimension {n} is too large") })
}

/// Shares a tensor's bytes with the message that is written, instead of copying every weight.
struct Shared(Tensor);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn tensor(name: &str, tensor: &Tensor) -> Result<TensorProto> {
    let mut out = TensorProto {
        name: Some(name.to_owned()),
        dims: tensor.shape().dims().iter().map(|&d| size(d)).collect::<Result<_>>()?,
        data_type: Some(element_type(tensor.dtype())?),
        ..TensorProto::default()
    };
    match tensor.strings() {
        Ok(texts) => out.string_data = texts.iter().map(|t| t.as_bytes().to_vec()).collect(),
        Err(_) if tensor.dtype().bits() < 8 => {
            let packed = lgp_memory::pack(tensor.dtype(), tensor.as_bytes());
            out.raw_data = Some(Bytes::from(packed));
        }
        Err(_) => out.raw_data = Some(Bytes::from_owner(Shared(tensor.clone()))),
    }
    Ok(out)
}

/// A graph inside a node; its values need no types.
fn subgraph(graph: &Subgraph) -> Result<GraphProto> {
    let values = |names: &[String]| -> Vec<ValueInfoProto> {
        let value =
            |name: &String| ValueInfoProto { name: Some(name.clone()), ..Default::default() };
        names.iter().map(value).collect()
    };
    Ok(GraphProto {
        name: Some(graph.name.clone()),
        node: graph.nodes.iter().map(node).collect::<Result<_>>()?,
        initializer: initializers(&graph.initializers)?,
        input: values(&graph.inputs),
        output: values(&graph.outputs),
        ..GraphProto::default()
    })
}

fn initializers(stored: &BTreeMap<String, Tensor>) -> Result<Vec<TensorProto>> {
    stored.iter().map(|(name, t)| tensor(name, t)).collect()
}

fn value(spec: &ValueSpec) -> Result<ValueInfoProto> {
    Ok(ValueInfoProto {
        name: Some(spec.name.clone()),
        r#type: Some(type_proto(spec.kind, &spec.ty)?),
        ..ValueInfoProto::default()
    })
}

fn type_proto(kind: ValueKind, ty: &TensorType) -> Result<TypeProto> {
    let inner = |kind| type_proto(kind, ty).map(|ty| Some(Box::new(ty)));
    let sequence = |elem_type| Value::SequenceType(Box::new(Sequence { elem_type }));
    let optional = |elem_type| Value::OptionalType(Box::new(Optional { elem_type }));
    let value = match kind {
        ValueKind::Tensor => Value::TensorType(type_proto::Tensor {
            elem_type: Some(element_type(ty.dtype)?),
            shape: shape(ty)?,
        }),
        ValueKind::Sequence => sequence(inner(ValueKind::Tensor)?),
        ValueKind::SequenceOfMaps => sequence(inner(ValueKind::Map)?),
        ValueKind::Optional => optional(inner(ValueKind::Tensor)?),
        ValueKind::OptionalSequence => optional(inner(ValueKind::Sequence)?),
        other => {
            let message = format!("the key type of {} is not known", other.describe(ty));
            return Err(Error::Export { message });
        }
    };
    Ok(TypeProto { value: Some(value), ..TypeProto::default() })
}

fn shape(ty: &TensorType) -> Result<Option<TensorShapeProto>> {
    let Some(SymShape(dims)) = &ty.shape else {
        return Ok(None);
    };
    let dim = dims.iter().map(|dim| {
        let value = match dim {
            Dim::Known(n) => Some(dimension::Value::DimValue(size(*n)?)),
            Dim::Symbol(s) => Some(dimension::Value::DimParam(s.to_string())),
            Dim::Unknown => None,
        };
        Ok(Dimension { value, ..Dimension::default() })
    });
    Ok(Some(TensorShapeProto { dim: dim.collect::<Result<_>>()? }))
}
