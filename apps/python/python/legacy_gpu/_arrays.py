"""Names of dtypes, here and there, and what counts as an array."""

from __future__ import annotations

from collections.abc import Sequence
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


def is_known(name: str) -> bool:
    """Whether NumPy knows a dtype by this name now; packages add others.

    >>> is_known("float32"), is_known("float6")
    (True, False)
    """
    try:
        np.dtype(name)
    except TypeError:
        return False
    return True


def is_text(array: NDArray[Any]) -> bool:
    """Whether an array may hold texts: of objects, or of one of NumPy's own kinds of strings."""
    return array.dtype.kind in "OUT"


def as_array(name: str, value: object) -> NDArray[Any]:
    """The array that an input is, where it lies: NumPy's own, or what DLPack tells of.

    >>> as_array("x", [1.0])
    Traceback (most recent call last):
        ...
    legacy_gpu._errors.InputError: input 'x' is of the type list, expected an array
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
    message = f"input '{name}' is of the type {type(value).__name__}, expected an array"
    raise InputError("input_invalid", message, f"np.asarray({name}, dtype=...) makes one")


def not_one(names: Sequence[str]) -> tuple[str, str]:
    """What is told, and what to do, where one array is given to a model that has not one input.

    >>> not_one(["a", "b"])
    ('the model has 2 inputs, expected a dictionary of arrays by name', 'give {"a": ..., "b": ...}')
    """
    message = f"the model has {len(names)} inputs, expected a dictionary of arrays by name"
    return message, "give {" + ", ".join(f'"{name}": ...' for name in names) + "}"


def texts(name: str, array: NDArray[Any]) -> list[str]:
    """The texts of an array of them, row-major.

    >>> texts("x", np.array([["a", "b"]], dtype=object))
    ['a', 'b']
    """
    flat: list[Any] = array.ravel().tolist()
    for text in flat:
        if not isinstance(text, str):
            message = f"input '{name}' has an element of the type {type(text).__name__}, expected str in all of them"
            raise InputError("input_dtype", message, "make a str of each element first; bytes have decode()")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            message = f"input '{name}' has a text that UTF-8 cannot write, expected valid Unicode: {error.reason}"
            hint = 'text.encode("utf-8", "replace").decode() puts ? in the place of what is wrong'
            raise InputError("input_invalid", message, hint) from error
    return flat


def in_order(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself where its elements lie one after another; a copy otherwise."""
    return np.require(array, requirements=["C", "A"])


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of an array whose elements lie one after another, without a copy."""
    return array.reshape(-1).view(np.uint8)
