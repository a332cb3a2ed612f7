"""Names of dtypes, here and there, and what counts as an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._errors import InputError

STRING = "str"
"""What a dtype of texts is called; their arrays have the dtype object."""

_NUMPY = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i4": "int4",
    "u4": "uint4",
    "i2": "int2",
    "u2": "uint2",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0": "float8_e8m0fnu",
    "f4e2m1": "float4_e2m1fn",
    "string": STRING,
}
_NATIVE = {theirs: ours for ours, theirs in _NUMPY.items()}


def numpy_name(native: str) -> str:
    """NumPy's name of a dtype of the engine.

    >>> numpy_name("f32"), numpy_name("bool"), numpy_name("string")
    ('float32', 'bool', 'str')
    """
    return _NUMPY.get(native, native)


def native_name(name: str) -> str:
    """The engine's name of a dtype of NumPy.

    >>> native_name("float32")
    'f32'
    """
    return _NATIVE.get(name, name)


def is_text(array: NDArray[Any]) -> bool:
    """Whether an array may hold texts: of objects, or of one of NumPy's own kinds of strings."""
    return array.dtype.kind in "OUT"


def as_array(name: str, value: object) -> NDArray[Any]:
    """The array that an input is, where it lies: NumPy's own, or what DLPack tells of.

    >>> as_array("x", [1.0])
    Traceback (most recent call last):
        ...
    legacy_gpu._errors.InputError: input 'x' is a list, expected an array
    hint: np.asarray(x, dtype=...) makes one
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        try:
            taken: NDArray[Any] = np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            message = f"input '{name}' cannot be taken through DLPack: {error}"
            hint = "copy it to the processor's memory first, as x.cpu() does"
            raise InputError("input_invalid", message, hint) from error
        return taken
    message = f"input '{name}' is a {type(value).__name__}, expected an array"
    raise InputError("input_invalid", message, f"np.asarray({name}, dtype=...) makes one")


def texts(name: str, array: NDArray[Any]) -> list[str]:
    """The texts of an array of them, row-major.

    >>> texts("x", np.array([["a", "b"]], dtype=object))
    ['a', 'b']
    """
    flat: list[Any] = array.ravel().tolist()
    for text in flat:
        if not isinstance(text, str):
            message = f"input '{name}' holds a {type(text).__name__}, expected str alone"
            raise InputError("input_dtype", message)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            message = f"input '{name}' holds a text that UTF-8 has no form for: {error.reason}"
            raise InputError("input_invalid", message) from error
    return flat


def in_order(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself where its elements lie one after another; a copy otherwise."""
    return np.require(array, requirements=["C", "A"])


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of an array whose elements lie one after another, without a copy."""
    return array.reshape(-1).view(np.uint8)
