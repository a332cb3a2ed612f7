"""What this machine has to run models on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from . import _native


@dataclass(frozen=True)
class Device:
    """A device of this machine, as `radeon-cluster devices` tells of it."""

    id: str
    """What `Session(device=...)` takes where it is usable, such as `vulkan:0`."""
    name: str
    """What its vendor calls it."""
    backend: str
    """What drives it: cpu, vulkan, opencl, cuda, or pci for a card that nothing drives."""
    memory_bytes: Optional[int]
    """How much memory it has, where that is known."""
    usable: bool
    """Whether models run there."""
    reason: Optional[str]
    """Why they do not."""
    hint: Optional[str]
    """What to do about that."""


def devices() -> list[Device]:
    """Looks for devices, and tries each with a short calculation.

    Other threads go on meanwhile.

    >>> [device.id for device in devices() if device.backend == "cpu"]
    ['cpu']
    """
    return [Device(*found) for found in _native.devices()]
