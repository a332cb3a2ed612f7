"""Neural networks on the GPUs that people already own.

`Session` runs an ONNX model on this machine, on arrays that NumPy has and without copies of them. `Client`
speaks to a cluster of machines. `devices()` says what this machine has, and why a device is not used.
"""

from __future__ import annotations

from ._client import Client
from ._devices import Device, devices
from ._errors import (
    AccessError,
    ClusterError,
    DeviceError,
    Error,
    InputError,
    ModelError,
    NotRunning,
    TaskFailed,
    Unreachable,
    UsageError,
    WaitTimeout,
)
from ._events import Event
from ._native import VERSION as __version__
from ._session import Session, Value
from ._tasks import NewTask, Output, Task

__all__ = [
    "AccessError",
    "Client",
    "ClusterError",
    "Device",
    "DeviceError",
    "Error",
    "Event",
    "InputError",
    "ModelError",
    "NewTask",
    "NotRunning",
    "Output",
    "Session",
    "Task",
    "TaskFailed",
    "Unreachable",
    "UsageError",
    "Value",
    "WaitTimeout",
    "__version__",
    "devices",
]
