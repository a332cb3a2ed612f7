//! Reads ONNX files.

use super::external::Location;
use super::proto::attribute_proto::AttributeType;
use super::proto::tensor_shape_proto::dimension;
use super::proto::{
    AttributeProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, type_proto,
};
use super::split::{self, Parts};
use super::{dtype, functions, sparse, tensor};
use crate::error::{Error, Result};
use crate::model::{Attr, Model, ModelNode, Subgraph, ValueSpec};
use lgp_memory::{Buffer, DType, Dim, SymShape, Tensor, TensorType, ValueKind};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Versions of the file format that this reader knows.
const IR_VERSIONS: (i64, i64) = (3, 14);

/// Versions of ONNX's operator set that are read. The oldest ones differ in attributes, and an
/// attribute that its mapping does not know is refused.
const OPSETS: (i64, i64) = (1, 28);

/// The bytes of a file, which must be a regular one: devices and pipes have no end.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
    length(path)?;
    std::fs::read(path).map_err(Error::io("read", path))
}

/// Size of a regular file in bytes.
fn length(path: &Path) -> Result<u64> {
    let about = std::fs::metadata(path).map_err(Error::io("read", path))?;
    if !about.is_file() {
        let reason = std::io::Error::other("not a regular file");
        return Err(Error::io("read", path)(reason));
    }
    Ok(about.len())
}

impl Model {
    /// Reads an ONNX file and the files beside it that hold its weights.
    ///
    /// # Errors
    /// [`Error::Io`] when the file cannot be read, [`Error::Malformed`] when it is no ONNX file,
    /// and an error that names the value, node or tensor when the file breaks ONNX's rules.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let len = length(path)?;
        let file = std::fs::File::open(path).map_err(Error::io("read", path))?;
        let file = std::io::BufReader::new(file);
        Self::read(file, len, Some(folder_of(path))).map_err(|error| of_file(error, path))
    }

    /// Reads the bytes of an ONNX file. `base` is the folder beneath which its external data lies,
    /// if it may have any.
    ///
    /// # Errors
    /// As [`Model::load`].
    pub fn from_bytes(bytes: &[u8], base: Option<&Path>) -> Result<Self> {
        Self::read(bytes, u64::try_from(bytes.len()).unwrap_or(u64::MAX), base)
    }

    fn read(from: impl std::io::Read, len: u64, base: Option<&Path>) -> Result<Self> {
        let Parts { mut proto, raw } = split::read(from, len)?;
        functions::inline(&mut proto)?;
        let ir_version = proto.ir_version.unwrap_or(0);
        if !(IR_VERSIONS.0..=IR_VERSIONS.1).contains(&ir_version) {
            return Err(Error::IrVersion { given: ir_version, expected: IR_VERSIONS });
        }
        let mut opsets = BTreeMap::new();
        for import in proto.opset_import {
            opsets.insert(domain(import.domain()), import.version.unwrap_or(0));
        }
        if opsets.is_empty() {
            return Err(Error::graph("the file names no operator set"));
        }
        let opset = opsets.get("").copied().unwrap_or(1);
        if !(OPSETS.0..=OPSETS.1).contains(&opset) {
            return Err(Error::Opset { given: opset, expected: OPSETS });
        }
        let metadata = proto
            .metadata_props
            .into_iter()
            .map(|e| (e.key.unwrap_or_default(), e.value.unwrap_or_default()))
            .collect();
        let producer = [proto.producer_name, proto.producer_version];
        let producer: Vec<String> =
            producer.into_iter().flatten().filter(|s| !s.is_empty()).collect();
        let graph = proto.graph.ok_or_else(|| Error::graph("the file has no graph"))?;
        let model = Self {
            name: String::new(),
            producer: producer.join(" "),
            ir_version,
            opsets,
            metadata,
            inputs: Vec::new(),
            defaults: Vec::new(),
            outputs: Vec::new(),
            operators: Default::default(),
            initializers: BTreeMap::new(),
            nodes: Vec::new(),
        };
        model.with_graph(graph, raw, base)?.validated()
    }

    fn with_graph(
        mut self,
        graph: GraphProto,
        raw: Vec<Option<Buffer>>,
        base: Option<&Path>,
    ) -> Result<Self> {
        self.initializers = initializers(&graph, raw, base)?;
        let mut seen = HashSet::new();
        for proto in &graph.input {
            let name = proto.name();
            if !seen.insert(name) {
                return Err(Error::graph(format!("input '{name}' is declared more than once")));
            }
            // Old files list the weights among the inputs too.
            if !self.initializers.contains_key(name) {
                self.inputs.push(value(proto, "input")?);
            } else if let Ok(spec) = value(proto, "input") {
                // A constant needs no declared type, so an unsupported type does no harm.
                self.defaults.push(spec);
            }
        }
        self.outputs = graph.output.iter().map(|v| value(v, "output")).collect::<Result<_>>()?;
        self.name = graph.name.unwrap_or_default();
        self.nodes = nodes(graph.node, base)?;
        Ok(self)
    }
}

/// The folder of a model's file, beneath which its weights may lie.
pub(crate) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        // A bare file name has the empty parent, which stands for the current folder.
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Adds the path of the file to an error about its bytes.
pub(crate) fn of_file(error: Error, path: &Path) -> Error {
    match error {
        Error::Malformed { message } => {
            Error::Malformed { message: format!("{}: {message}", path.display()) }
        }
        other => other,
    }
}

/// The files beside a model that hold its weights: the model's name of each, and its path.
///
/// # Errors
/// As [`Model::load`].
pub(crate) fn external_files(
    bytes: &[u8],
    base: Option<&Path>,
) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let proto = split::read(bytes, u64::try_from(bytes.len()).unwrap_or(u64::MAX))?.proto;
    let graph = proto.graph.unwrap_or_default();
    let mut files = BTreeMap::new();
    let mut nodes: Vec<&NodeProto> = graph.node.iter().collect();
    nodes.extend(proto.functions.iter().flat_map(|f| &f.node));
    let defaults = proto.functions.iter().flat_map(|f| &f.attribute_proto);
    let mut attributes: Vec<&AttributeProto> = defaults.collect();
    let mut tensors: Vec<&TensorProto> = graph.initializer.iter().collect();
    let mut sparse: Vec<&SparseTensorProto> = graph.sparse_initializer.iter().collect();
    loop {
        attributes.extend(nodes.drain(..).flat_map(|node| &node.attribute));
        if attributes.is_empty() {
            break;
        }
        for attribute in attributes.drain(..) {
            tensors.extend(attribute.t.as_ref());
            sparse.extend(attribute.sparse_tensor.as_ref());
            if let Some(graph) = &attribute.g {
                nodes.extend(&graph.node);
                tensors.extend(&graph.initializer);
                sparse.extend(&graph.sparse_initializer);
            }
        }
    }
    tensors.extend(sparse.iter().flat_map(|s| s.values.iter().chain(&s.indices)));
    for proto in tensors {
        if tensor::is_external(proto) {
            let location = Location::parse(proto.name(), &proto.external_data)?;
            files.insert(location.relative().to_owned(), location.resolve(base)?);
        }
    }
    Ok(files)
}

/// ONNX's own domain has two spellings.
fn domain(name: &str) -> String {
    if name == "ai.onnx" { String::new() } else { name.to_owned() }
}

fn value(proto: &ValueInfoProto, what: &str) -> Result<ValueSpec> {
    let name = proto.name();
    let fail = |message: String| Error::graph(format!("{what} '{name}' {message}"));
    let ty = proto.r#type.as_ref().ok_or_else(|| fail("has no type".into()))?;
    let (kind, ty) = value_type(ty).map_err(fail)?;
    Ok(ValueSpec { name: name.to_owned(), ty, kind })
}

/// A declared type; the error tells what is not supported.
fn value_type(proto: &TypeProto) -> Result<(ValueKind, TensorType), String> {
    use type_proto::Value;
    let inner = |ty: &Option<Box<TypeProto>>| match ty {
        Some(ty) => value_type(ty),
        None => Err("has no element type".to_owned()),
    };
    match proto.value.as_ref() {
        Some(Value::TensorType(tensor)) => {
            let dtype = element_type(tensor.elem_type)?;
            let shape = tensor.shape.as_ref().map(shape).transpose()?;
            Ok((ValueKind::Tensor, TensorType { dtype, shape }))
        }
        Some(Value::SequenceType(sequence)) => match inner(&sequence.elem_type)? {
            (ValueKind::Tensor, ty) => Ok((ValueKind::Sequence, ty)),
            (ValueKind::Map, ty) => Ok((ValueKind::SequenceOfMaps, ty)),
            _ => Err("is a sequence of what is neither a tensor nor a map".to_owned()),
        },
        Some(Value::OptionalType(optional)) => match inner(&optional.elem_type)? {
            (ValueKind::Tensor, ty) => Ok((ValueKind::Optional, ty)),
            (ValueKind::Sequence, ty) => Ok((ValueKind::OptionalSequence, ty)),
            _ => Err("is optional, but neither a tensor nor a sequence of tensors".to_owned()),
        },
        Some(Value::MapType(map)) => match inner(&map.value_type)? {
            (ValueKind::Tensor, ty) => Ok((ValueKind::Map, ty)),
            _ => Err("is a map to what is no tensor".to_owned()),
        },
        Some(Value::SparseTensorType(_)) => Err("is a sparse tensor".to_owned()),
        Some(Value::OpaqueType(_)) => Err("has an opaque type".to_owned()),
        None => Err("has no type".to_owned()),
    }
}

fn element_type(code: Option<i32>) -> Result<DType, String> {
    dtype::from_onnx(i64::from(code.unwrap_or(0)))
        .map_err(|given| format!("has element type {given}, which is not supported"))
}

fn shape(proto: &TensorShapeProto) -> Result<SymShape, String> {
    let dims = proto.dim.iter().map(|dim| match &dim.value {
        Some(dimension::Value::DimValue(n)) => match usize::try_from(*n) {
            Ok(n) => Ok(Dim::Known(n)),
            // Some writers put -1 where they mean unknown.
            Err(_) if *n == -1 => Ok(Dim::Unknown),
            Err(_) => Err(format!("has dimension {n}, expected 0 or more")),
        },
        Some(dimension::Value::DimParam(s)) if !s.is_empty() => Ok(Dim::Symbol(s.as_str().into())),
        _ => Ok(Dim::Unknown),
    });
    dims.collect::<Result<_, _>>().map(SymShape)
}

fn node(index: usize, proto: NodeProto, base: Option<&Path>) -> Result<ModelNode> {
    let op_type = proto.op_type.unwrap_or_default();
    let name = match proto.name {
        Some(name) if !name.is_empty() => name,
        _ => format!("{op_type}_{index}"),
    };
    let mut attributes = BTreeMap::new();
    for attribute_proto in proto.attribute {
        let mut key = attribute_proto.name().to_owned();
        if key == "sparse_value" && attribute_proto.sparse_tensor.is_some() {
            // The sparse tensor is read as a dense one, so it is a constant like any other.
            key = "value".to_owned();
        }
        let value = attribute(&name, attribute_proto, base)?;
        if attributes.insert(key.clone(), value).is_some() {
            let message = format!("node '{name}' ({op_type}) has attribute '{key}' more than once");
            return Err(Error::graph(message));
        }
    }
    Ok(ModelNode {
        name,
        op_type,
        domain: domain(&proto.domain.unwrap_or_default()),
        inputs: proto.input,
        outputs: proto.output,
        attributes,
    })
}

fn attribute(node: &str, proto: AttributeProto, base: Option<&Path>) -> Result<Attr> {
    let key = proto.name.clone().unwrap_or_default();
    let fail =
        |message: String| Error::graph(format!("attribute '{key}' of node '{node}' {message}"));
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes).map_err(|_| fail("is a string that is not UTF-8".into()))
    };
    if proto.ref_attr_name.as_ref().is_some_and(|r| !r.is_empty()) {
        return Err(fail("refers to a function's attribute outside of a function".into()));
    }
    Ok(match kind(&proto) {
        AttributeType::Float => Attr::Float(proto.f.unwrap_or(0.)),
        AttributeType::Int => Attr::Int(proto.i.unwrap_or(0)),
        AttributeType::String => Attr::Str(text(proto.s.unwrap_or_default())?),
        AttributeType::Floats => Attr::Floats(proto.floats),
        AttributeType::Ints => Attr::Ints(proto.ints),
        AttributeType::Strings => {
            Attr::Strs(proto.strings.into_iter().map(text).collect::<Result<_>>()?)
        }
        AttributeType::Tensor => {
            let value = proto.t.ok_or_else(|| fail("has no tensor".into()))?;
            Attr::Tensor(tensor::read(&format!("{node}.{key}"), &value, base)?)
        }
        AttributeType::Graph => {
            let graph = proto.g.ok_or_else(|| fail("has no graph".into()))?;
            Attr::Graph(Arc::new(subgraph(graph, base)?))
        }
        AttributeType::TypeProto => {
            let ty = proto.tp.ok_or_else(|| fail("has no type".into()))?;
            let (kind, ty) = value_type(&ty).map_err(fail)?;
            Attr::Type(kind, ty)
        }
        AttributeType::SparseTensor => {
            let value = proto.sparse_tensor.ok_or_else(|| fail("has no sparse tensor".into()))?;
            Attr::Tensor(sparse::read(&format!("{node}.{key}"), &value, base)?)
        }
        AttributeType::SparseTensors => Attr::Other("list of sparse tensors"),
        AttributeType::Graphs => Attr::Other("list of graphs"),
        AttributeType::Tensors => Attr::Other("list of tensors"),
        AttributeType::TypeProtos => Attr::Other("list of types"),
        AttributeType::Undefined => Attr::Other("value of unknown kind"),
    })
}

/// A graph inside a node. Its values need not declare their types.
fn subgraph(graph: GraphProto, base: Option<&Path>) -> Result<Subgraph> {
    let initializers = initializers(&graph, Vec::new(), base)?;
    let names = |values: &[ValueInfoProto]| -> Vec<String> {
        values.iter().map(|v| v.name().to_owned()).collect()
    };
    let mut inputs = names(&graph.input);
    inputs.retain(|name| !initializers.contains_key(name));
    Subgraph {
        inputs,
        outputs: names(&graph.output),
        initializers,
        name: graph.name.unwrap_or_default(),
        nodes: nodes(graph.node, base)?,
        captures: Vec::new(),
    }
    .validated()
}

fn nodes(protos: Vec<NodeProto>, base: Option<&Path>) -> Result<Vec<ModelNode>> {
    protos.into_iter().enumerate().map(|(index, proto)| node(index, proto, base)).collect()
}

/// The stored tensors of a graph; `raw` has the raw data that was taken out of the message.
fn initializers(
    graph: &GraphProto,
    raw: Vec<Option<Buffer>>,
    base: Option<&Path>,
) -> Result<BTreeMap<String, Tensor>> {
    let raw = raw.into_iter().chain(std::iter::repeat_with(|| None));
    let dense = graph.initializer.iter().zip(raw).map(|(proto, raw)| {
        let name = proto.name();
        tensor::read_with(name, proto, raw, base).map(|tensor| (name, tensor))
    });
    let sparse = graph.sparse_initializer.iter().map(|proto| {
        let name = proto.values.as_ref().map_or("", |values| values.name());
        sparse::read(name, proto, base).map(|tensor| (name, tensor))
    });
    let mut stored = BTreeMap::new();
    for read in dense.chain(sparse) {
        let (name, tensor) = read?;
        if stored.insert(name.to_owned(), tensor).is_some() {
            return Err(Error::graph(format!("initializer '{name}' is defined more than once")));
        }
    }
    Ok(stored)
}

/// The declared kind; where a writer declares none, the kind of the field that is filled.
fn kind(proto: &AttributeProto) -> AttributeType {
    let declared = proto.r#type.and_then(|t| AttributeType::try_from(t).ok());
    match declared {
        Some(AttributeType::Undefined) | None => {}
        Some(declared) => return declared,
    }
    if proto.f.is_some() {
        AttributeType::Float
    } else if proto.i.is_some() {
        AttributeType::Int
    } else if proto.s.is_some() {
        AttributeType::String
    } else if proto.t.is_some() {
        AttributeType::Tensor
    } else if proto.g.is_some() {
        AttributeType::Graph
    } else if !proto.floats.is_empty() {
        AttributeType::Floats
    } else if !proto.ints.is_empty() {
        AttributeType::Ints
    } else if !proto.strings.is_empty() {
        AttributeType::Strings
    } else {
        AttributeType::Undefined
    }
}
