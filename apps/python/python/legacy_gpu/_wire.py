"""Tensors as the cluster's interface writes them: JSON that describes them, and bytes behind it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _arrays
from ._errors import InputError, Unreachable

_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
}
_TEXT = "BYTES"
_DTYPES = {theirs: ours for ours, theirs in _DATATYPES.items()}


def described(name: str, value: object) -> tuple[dict[str, Any], list[memoryview]]:
    """An input as the interface takes it, and its bytes, which are not copied where they lie in order.

    >>> head, parts = described("x", np.zeros((1, 2), np.float32))
    >>> head["shape"], head["datatype"], [len(part) for part in parts]
    ([1, 2], 'FP32', [8])
    """
    array = _arrays.as_array(name, value)
    if _arrays.is_text(array):
        datatype, part = _TEXT, memoryview(_packed(_arrays.texts(name, array)))
    else:
        datatype = _DATATYPES.get(array.dtype.name, "")
        if not datatype or not array.dtype.isnative:
            found = array.dtype.name if array.dtype.isnative else array.dtype.str
            message = f"input '{name}' is {found}, expected {', '.join(_DATATYPES)} or {_arrays.STRING}"
            hint = f'give {name}.astype("{array.dtype.name if datatype else "float32"}")'
            raise InputError("input_dtype", message, hint)
        part = _arrays.as_bytes(_arrays.in_order(array)).data
    size = {"binary_data_size": part.nbytes}
    return {"name": name, "shape": list(array.shape), "datatype": datatype, "parameters": size}, [part]


def _packed(texts: list[str]) -> bytes:
    encoded = [text.encode() for text in texts]
    return b"".join(struct.pack("<I", len(text)) + text for text in encoded)


def unpacked(data: memoryview, count: int) -> list[str]:
    """So many texts, each behind its length."""
    found, at = [], 0
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, at)
        at += 4
        if at + length > len(data):
            raise ValueError(f"a text has {length} bytes, and {len(data) - at} are left")
        found.append(str(data[at : at + length], "utf-8"))
        at += length
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last of {count} texts")
    return found


def outputs(described: list[Mapping[str, Any]], behind: memoryview = memoryview(b"")) -> dict[str, Any]:
    """The arrays of an answer, by name. `behind` is what follows its JSON.

    >>> outputs([{"name": "y", "shape": [2], "datatype": "FP32", "data": [1, "Infinity"]}])["y"]
    array([ 1., inf], dtype=float32)
    """
    found: dict[str, Any] = {}
    try:
        for output in described:
            size = (output.get("parameters") or {}).get("binary_data_size")
            if size is None:
                found[output["name"]] = _from_json(output)
                continue
            if not 0 <= size <= len(behind):
                raise ValueError(f"a tensor has {size} bytes, and {len(behind)} are left")
            found[output["name"]] = _from_bytes(output, behind[:size])
            behind = behind[size:]
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, struct.error) as error:
        message = f"the answer's outputs cannot be read, expected tensors of the Open Inference Protocol: {error!r}"
        raise Unreachable("bad_answer", message, "ask again; the coordinator may be of another version") from None
    return found


def _from_json(output: Mapping[str, Any]) -> Any:
    shape, datatype = output["shape"], output["datatype"]
    if datatype == _TEXT:
        return np.array(output["data"], dtype=object).reshape(shape)
    dtype = "float32" if datatype == "BF16" else _DTYPES[datatype]
    return np.array(output["data"], dtype=dtype).reshape(shape)


def _from_bytes(output: Mapping[str, Any], data: memoryview) -> Any:
    shape, datatype = output["shape"], output["datatype"]
    if datatype == _TEXT:
        texts = unpacked(data, int(np.prod(shape, dtype=np.int64)))
        return np.array(texts, dtype=object).reshape(shape)
    if datatype == "BF16":
        wide = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    return np.frombuffer(data, _DTYPES[datatype]).reshape(shape)
