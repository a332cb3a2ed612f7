"""Writes small ONNX models, as the protocol buffers that they are: the tests need no other package for it."""

import numpy as np

FLOAT, UINT8, INT64, STRING, BOOL, FLOAT16, BFLOAT16 = 1, 2, 7, 8, 9, 10, 16
TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "object": 8,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
}


def _varint(number):
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes(parts + bytes([number]))


def _field(number, value):
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    value = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _message(*fields):
    return b"".join(_field(number, value) for number, value in fields)


def tensor_type(elem, dims=None):
    """The type of a tensor; `dims` are numbers, names, or None for a length that is open."""
    fields = [(1, elem)]
    if dims is not None:
        shape = [_field(1, dim) if isinstance(dim, int) else _field(2, dim or "") for dim in dims]
        fields.append((2, b"".join(_field(1, one if one[-1:] != b"\0" else b"") for one in shape)))
    return _message((1, _message(*fields)))


def sequence_type(inner):
    return _message((4, _message((1, inner))))


def map_type(key, inner):
    return _message((5, _message((1, key), (2, inner))))


def value(name, type_):
    return _message((1, name), (2, type_))


def attribute(name, **content):
    """An attribute: `i`, `ints`, `strings` or `tensor`."""
    (kind, what), = content.items()
    if kind == "i":
        return _message((1, name), (3, what), (20, 2))
    if kind == "ints":
        return _message((1, name), *[(8, one) for one in what], (20, 7))
    if kind == "strings":
        return _message((1, name), *[(9, one) for one in what], (20, 8))
    return _message((1, name), (5, what), (20, 4))


def node(op, inputs, outputs, *attributes, domain=""):
    named = [(1, name) for name in inputs] + [(2, name) for name in outputs]
    return _message(*named, (4, op), *[(5, one) for one in attributes], (7, domain))


def tensor(name, array):
    """A constant, of numbers."""
    dims = [(1, length) for length in array.shape]
    return _message(*dims, (2, TYPES[array.dtype.name]), (8, name), (9, array.tobytes()))


def model(nodes, inputs, outputs, constants=(), domains=()):
    """The bytes of a model."""
    graph = _message(
        *[(1, one) for one in nodes],
        (2, "g"),
        *[(5, one) for one in constants],
        *[(11, value(*one)) for one in inputs],
        *[(12, value(*one)) for one in outputs],
    )
    imports = [_message((1, ""), (2, 17))] + [_message((1, name), (2, 3)) for name in domains]
    return _message((1, 8), (7, graph), *[(8, one) for one in imports])


def identity(elem, dims=("n",), op="Identity"):
    """A model whose output is its input."""
    type_ = tensor_type(elem, dims)
    return model([node(op, ["x"], ["y"])], [("x", type_)], [("y", type_)])


SIZE = 512
SQUARE = np.ones((SIZE, SIZE), np.float32)


def products(nodes):
    """A chain of products of matrices, each of which takes some milliseconds."""
    type_ = tensor_type(FLOAT, (SIZE, SIZE))
    weights = tensor("w", np.eye(SIZE, dtype=np.float32))
    names = ["x", *[f"v{i}" for i in range(nodes - 1)], "y"]
    chain = [node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(nodes)]
    return model(chain, [("x", type_)], [("y", type_)], [weights])
