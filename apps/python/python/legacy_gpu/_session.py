"""A model that runs on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, Optional, SupportsIndex, Union

from . import _arrays, _native
from ._errors import InputError, UsageError

_BYTES = (bytes, bytearray, memoryview)
_COUNT_MAX = 1 << 63
"""What every number is below that the extension can be given; it checks the limits of each itself."""
_EXPECTED = {"threads": "1 to 1024", "vram": f"1024 to {_COUNT_MAX - 1} bytes"}
"""Those limits."""


@dataclass(frozen=True)
class Value:
    """An input or an output of a model."""

    name: str
    """What a run calls it."""
    dtype: str
    """The dtype of its elements by NumPy's name; `str` for texts, whose arrays have the dtype object."""
    shape: Optional[tuple[Union[int, str, None], ...]]
    """Its lengths: a number, the name of one that is open, or None for one that is open and has no name.
    None where not even their number is known."""
    kind: str = "a tensor"
    """`a tensor`, or what else it is, such as `a sequence`, whose tensors have the dtype and shape."""


class Session:
    """A model that is ready to run, on this machine.

    Any number of threads may call `run` at once, and other threads of Python go on meanwhile. A process that
    is forked has no use of its parent's sessions: make one in each process.

    Args:
        model: The path of an ONNX file, or its bytes.
        device: `auto` for the best device that runs models, `cpu`, `vulkan:0`, `opencl:0`,
            `cuda:0`; a list such as `vulkan:0,vulkan:1` cuts a model over several.
        threads: How many threads a run may use; all cores without it.
        precision: `f32` as the model is written; `fast` for bf16 where the processor has it; `int8` for
            products of matrices in 8 bits.
        vram: What the model may take of a device's memory, in bytes or as in `"2GiB"`; what is free without
            it.

    Raises:
        ModelError: The file cannot be read, or the model uses an operator that is not implemented.
        DeviceError: The device is not there, or cannot be used; `devices()` says why.
        UsageError: An argument is out of its bounds, or does not go with another.
        TypeError: An argument is of another type.

    >>> session = Session(digits, device="cpu")
    >>> session.inputs
    (Value(name='image', dtype='float32', shape=('n', 1, 8, 8), kind='a tensor'),)
    >>> session.run(np.zeros((2, 1, 8, 8), np.float32))["logits"].shape
    (2, 10)
    """

    def __init__(
        self,
        model: Union[str, os.PathLike[str], bytes, bytearray, memoryview],
        device: str = "auto",
        threads: Optional[int] = None,
        precision: str = "f32",
        vram: Union[int, str, None] = None,
    ) -> None:
        _check_type("model", model, "the path of an ONNX file, or its bytes", str, os.PathLike, *_BYTES)
        _check_type("device", device, 'a str such as "vulkan:0"', str)
        _check_type("threads", threads, "a whole number or None", SupportsIndex, type(None))
        _check_type("precision", precision, 'a str such as "f32"', str)
        kinds = (SupportsIndex, str, type(None))
        _check_type("vram", vram, 'a whole number of bytes, a str such as "2GiB", or None', *kinds)
        for name, count in (("threads", threads), ("vram", vram)):
            if isinstance(count, SupportsIndex) and not 0 <= index(count) < _COUNT_MAX:
                raise UsageError("usage", f"{name} is {count}, expected {_EXPECTED[name]}")
        if isinstance(model, (bytearray, memoryview)):
            model = bytes(model)
        self._native = _native.Session(model, device, threads, precision, vram)
        self._inputs = tuple(map(_value, self._native.inputs))
        self._outputs = tuple(map(_value, self._native.outputs))

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What a run takes."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """What a run answers."""
        return self._outputs

    @property
    def device(self) -> str:
        """Where it runs, such as `cpu` or `vulkan:0`."""
        return self._native.device

    def __repr__(self) -> str:
        names = ", ".join(value.name for value in self._inputs)
        return f"<legacy_gpu.Session of {names} on {self.device}>"

    def run(self, inputs: Union[Mapping[str, Any], Any]) -> dict[str, Any]:
        """Runs the model once.

        An input is an array of NumPy or of any library that has DLPack, in the processor's memory. Its dtype
        must be the model's. It is read where it lies, so nobody may write to it meanwhile; only one whose
        elements do not lie one after another in C order is copied. A sequence is a list of arrays, which are
        copied.

        Args:
            inputs: Arrays by the names of the model's inputs; or the one array, where it has one input.

        Returns:
            The outputs by name. An array is on the memory that the run left it in, and the caller's own;
            texts are arrays of the dtype object, and what NumPy has no dtype for comes wider, as bfloat16
            does in float32. A sequence is a list, a map a dictionary, and what is absent None.

        Raises:
            InputError: An input has another name, dtype or shape than the model's, or is missing.
            ModelError: The model cannot compute with these inputs.
            KeyboardInterrupt: Ctrl-C was pressed; the run ends after the operator that is at work.

        >>> Session(digits, device="cpu").run({"image": np.zeros((1, 1, 8, 8))})
        Traceback (most recent call last):
            ...
        legacy_gpu._errors.InputError: input 'image' is float64, expected float32
        hint: give image.astype("float32")
        """
        if not isinstance(inputs, Mapping):
            if len(self._inputs) != 1:
                raise InputError("input_name", *_arrays.not_one([value.name for value in self._inputs]))
            inputs = {self._inputs[0].name: inputs}
        for name in inputs:
            if not isinstance(name, str):
                raise TypeError(f"the name {name!r} of an input is of the type {type(name).__name__}, expected str")
        expected = {value.name: value for value in self._inputs}
        given = [(name, _given(name, value, expected.get(name))) for name, value in inputs.items()]
        # Python tells the main thread alone of signals; to look for them there takes a thread more.
        watched = threading.get_ident() == threading.main_thread().ident
        return dict(self._native.run(given, watched))


def _check_type(name: str, given: object, expected: str, *kinds: type) -> None:
    if not isinstance(given, kinds):
        raise TypeError(f"the argument {name} is of the type {type(given).__name__}, expected {expected}")


def _value(spec: _native.Spec) -> Value:
    name, kind, dtype, shape = spec
    return Value(name, _arrays.numpy_name(dtype), None if shape is None else tuple(shape), kind)


def _given(name: str, value: Any, expected: Optional[Value]) -> _native.Given:
    """An input as the extension takes it. One that the model does not have is refused there."""
    if isinstance(value, (list, tuple)) and (expected is None or "sequence" in expected.kind):
        return [_given(name, item, expected) for item in value]
    array = _arrays.as_array(name, value)
    found = _arrays.STRING if _arrays.is_text(array) else array.dtype.name
    if expected is not None and not (found == expected.dtype and array.dtype.isnative):
        raise _wrong_dtype(name, found if array.dtype.isnative else array.dtype.str, expected.dtype)
    if found == _arrays.STRING:
        return (list(array.shape), _arrays.texts(name, array))
    array = _arrays.in_order(array)
    return (_arrays.native_name(found), list(array.shape), _arrays.as_bytes(array))


def _wrong_dtype(name: str, found: str, expected: str) -> InputError:
    dtype = "object" if expected == _arrays.STRING else f'"{expected}"'
    hint = f"give {name}.astype({dtype})"
    if not _arrays.is_known(expected):
        hint += "; NumPy knows it once a package that adds it, such as ml_dtypes, is imported"
    return InputError("input_dtype", f"input '{name}' is {found}, expected {expected}", hint)
