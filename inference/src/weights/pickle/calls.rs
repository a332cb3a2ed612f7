//! The globals that a pickle may name, and the results of calling them.

use super::{Global, Heap, Id, Node, RANK_MAX, Storage, View};
use crate::weights::Fail;
use lgp_memory::DType;

/// The global of a name.
pub(super) fn global(module: &str, name: &str) -> Result<Global, Fail> {
    let found = match (module, name) {
        ("collections", "OrderedDict") => Some(Global::OrderedDict),
        ("torch", "Size") => Some(Global::Size),
        ("torch", "device") => Some(Global::Device),
        ("__builtin__" | "builtins", "set" | "frozenset") => Some(Global::Set),
        ("_codecs", "encode") => Some(Global::Encode),
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Some(Global::RebuildTensor),
        ("torch._utils", "_rebuild_tensor_v3") => Some(Global::RebuildTensorV3),
        ("torch._utils", "_rebuild_parameter") => Some(Global::RebuildParameter),
        ("torch" | "torch.storage" | "torch.cuda", _) => torch(name),
        _ => None,
    };
    found.ok_or_else(|| Fail::Global(format!("{module}.{name}")))
}

/// Storages and element types of torch.
fn torch(name: &str) -> Option<Global> {
    let storage = |dtype| Some(Global::Storage(Some(dtype)));
    match name {
        "UntypedStorage" => Some(Global::Storage(None)),
        "FloatStorage" => storage(DType::F32),
        "DoubleStorage" => storage(DType::F64),
        "HalfStorage" => storage(DType::F16),
        "BFloat16Storage" => storage(DType::BF16),
        "LongStorage" => storage(DType::I64),
        "IntStorage" => storage(DType::I32),
        "ShortStorage" => storage(DType::I16),
        "CharStorage" => storage(DType::I8),
        "ByteStorage" => storage(DType::U8),
        "BoolStorage" => storage(DType::Bool),
        "ComplexFloatStorage" => storage(DType::Complex64),
        "ComplexDoubleStorage" => storage(DType::Complex128),
        _ => dtype(name).map(Global::DType),
    }
}

fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "float32" => DType::F32,
        "float64" => DType::F64,
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        "int64" => DType::I64,
        "int32" => DType::I32,
        "int16" => DType::I16,
        "int8" => DType::I8,
        "uint8" => DType::U8,
        "uint16" => DType::U16,
        "uint32" => DType::U32,
        "uint64" => DType::U64,
        "bool" => DType::Bool,
        "float8_e4m3fn" => DType::F8E4M3FN,
        "float8_e4m3fnuz" => DType::F8E4M3FNUZ,
        "float8_e5m2" => DType::F8E5M2,
        "float8_e5m2fnuz" => DType::F8E5M2FNUZ,
        "float8_e8m0fnu" => DType::F8E8M0,
        "complex64" => DType::Complex64,
        "complex128" => DType::Complex128,
        _ => return None,
    })
}

/// The result of calling a global with arguments.
pub(super) fn call(heap: &mut Heap<'_>, callee: Id, args: Id) -> Result<Node, Fail> {
    let Node::Global(callee) = heap.get(callee) else {
        return Err(Fail::from("a pickle calls something that is no name"));
    };
    let Node::Tuple(args) = heap.get(args) else {
        return Err(Fail::from("a pickle calls with something that is no tuple"));
    };
    match (callee, args.as_slice()) {
        (Global::OrderedDict, []) => Ok(Node::Dict(Vec::new())),
        (Global::OrderedDict, &[pairs]) => dict(heap, pairs),
        (Global::Size, [sizes]) => {
            let sizes = heap.sequence(*sizes).filter(|sizes| sizes.len() <= RANK_MAX);
            let rule = || format!("a size that is no tuple of at most {RANK_MAX}");
            Ok(Node::Tuple(sizes.ok_or_else(rule)?.to_vec()))
        }
        (Global::Device | Global::Set | Global::Encode, _) => Ok(Node::Other),
        (Global::RebuildTensor, [storage, offset, shape, strides, ..]) => {
            let Node::Storage(stored) = heap.get(*storage) else {
                return Err(Fail::from("a tensor without a storage"));
            };
            let dtype = stored.dtype.unwrap_or(DType::U8);
            view(heap, *storage, dtype, [*offset, *shape, *strides])
        }
        (Global::RebuildTensorV3, [storage, offset, shape, strides, _, _, dtype, ..]) => {
            let Node::Global(Global::DType(dtype)) = heap.get(*dtype) else {
                return Err(Fail::from("a tensor without an element type"));
            };
            view(heap, *storage, *dtype, [*offset, *shape, *strides])
        }
        (Global::RebuildParameter, [tensor, ..]) => match heap.get(*tensor) {
            Node::Tensor(view) => Ok(Node::Tensor(view.clone())),
            _ => Err(Fail::from("a parameter that is no tensor")),
        },
        (callee, args) => {
            Err(Fail::Bad(format!("a pickle calls {callee:?} with {} arguments", args.len())))
        }
    }
}

/// A dictionary from a list of pairs.
fn dict(heap: &mut Heap<'_>, pairs: Id) -> Result<Node, Fail> {
    let len = heap.sequence(pairs).ok_or("a dictionary of no list")?.len();
    // A pickle may use the same list again and again, so copies are limited.
    let copies = heap.copies.checked_sub(len);
    heap.copies = copies.ok_or("dictionaries of more pairs than the file is long")?;
    let pairs =
        heap.sequence(pairs).unwrap_or_default().iter().map(|&pair| match heap.sequence(pair) {
            Some([key, value]) => Ok((*key, *value)),
            _ => Err(Fail::from("a dictionary of what are no pairs")),
        });
    Ok(Node::Dict(pairs.collect::<Result<_, _>>()?))
}

fn view(heap: &Heap<'_>, storage: Id, dtype: DType, layout: [Id; 3]) -> Result<Node, Fail> {
    if !matches!(heap.get(storage), Node::Storage(_)) {
        return Err(Fail::from("a tensor without a storage"));
    }
    let [offset, shape, strides] = layout;
    let (Some(offset), Some(shape), Some(strides)) =
        (heap.size(offset), heap.sizes(shape), heap.sizes(strides))
    else {
        return Err(Fail::from("a tensor whose offset, shape or strides are no sizes"));
    };
    Ok(Node::Tensor(Box::new(View { storage, dtype, offset, shape, strides })))
}

/// The storage of a persistent identifier.
pub(super) fn storage(heap: &Heap<'_>, id: Id) -> Result<Node, Fail> {
    let fail = || Fail::from("a persistent identifier that is no storage");
    let Node::Tuple(items) = heap.get(id) else { return Err(fail()) };
    let [kind, class, key, _, elements, rest @ ..] = items.as_slice() else { return Err(fail()) };
    let (Some("storage"), Node::Global(Global::Storage(dtype))) =
        (heap.text(*kind), heap.get(*class))
    else {
        return Err(fail());
    };
    let key = *key;
    let elements = heap.size(*elements).ok_or_else(fail)?;
    // The format before zip files has views of storages: key, offset and length.
    let offset = match rest.first().map(|&view| heap.get(view)) {
        Some(Node::Tuple(view)) => {
            view.get(1).and_then(|&offset| heap.size(offset)).ok_or_else(fail)?
        }
        _ => 0,
    };
    Ok(Node::Storage(Box::new(Storage { key, dtype: *dtype, elements, offset })))
}
