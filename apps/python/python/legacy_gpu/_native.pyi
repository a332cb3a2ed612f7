"""What the extension has: the rest of the package is Python."""

from typing import Any, Optional, Union

import numpy as np
from numpy.typing import NDArray

VERSION: str

Spec = tuple[str, str, str, Optional[list[Union[int, str, None]]]]
"""Name, kind, dtype, and shape where its rank is known."""

Given = Union[tuple[str, list[int], NDArray[np.uint8]], tuple[list[int], list[str]], list[Any]]
"""A tensor's dtype, shape and bytes; the shape of one of texts, and these; or such of a sequence."""

def devices() -> list[
    tuple[str, str, str, Optional[int], bool, Optional[str], Optional[str]]
]: ...

class Array:
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class Session:
    def __init__(
        self,
        model: Any,
        device: str,
        threads: Optional[int],
        precision: str,
        vram: Union[int, str, None],
    ) -> None: ...
    @property
    def inputs(self) -> list[Spec]: ...
    @property
    def outputs(self) -> list[Spec]: ...
    @property
    def device(self) -> str: ...
    def run(self, inputs: list[tuple[str, Given]], watched: bool) -> list[tuple[str, Any]]: ...
