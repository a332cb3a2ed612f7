"""What can go wrong: one class for each thing that a program may want to tell apart."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """Every error of the package: a code for programs, a message, and what can be done.

    >>> error = Error("device_missing", "no device cuda:0", "take the device auto")
    >>> error.code, error.hint
    ('device_missing', 'take the device auto')
    >>> print(error)
    no device cuda:0
    hint: take the device auto
    """

    code: str
    """A stable identifier, such as `device_missing`."""
    message: str
    """What was wrong, and what was expected."""
    hint: Optional[str]
    """What can be done about it."""

    def __init__(self, code: str, message: str, hint: Optional[str] = None) -> None:
        super().__init__(code, message, hint)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class UsageError(Error, ValueError):
    """An argument that is out of its bounds, or arguments that contradict each other."""


class InputError(Error, ValueError):
    """An input that the model does not take."""


class DeviceError(Error):
    """A device that is not there, or cannot be used."""


class ModelError(Error):
    """A model that cannot be read, or that cannot compute what it was given."""


class WaitTimeout(Error, TimeoutError):
    """What was waited for did not come in time."""


class ClusterError(Error):
    """What a cluster refused, or could not do."""


class NotRunning(ClusterError):
    """No coordinator runs where one was looked for."""


class Unreachable(ClusterError):
    """A coordinator that cannot be reached, does not answer, or answers what it should not."""


class AccessError(ClusterError):
    """A key that is missing or unknown, or that may not do this."""


class TaskFailed(ClusterError):
    """A task that ended without a result."""

    task_id: str
    """The task."""

    def __init__(
        self, code: str, message: str, hint: Optional[str] = None, task_id: str = ""
    ) -> None:
        super().__init__(code, message, hint)
        self.task_id = task_id


_BY_CODE: dict[str, type[Error]] = {
    "usage": UsageError,
    "not_running": NotRunning,
    "not_the_owners": AccessError,
    "bad_key": AccessError,
    "bad_input": InputError,
}
_BY_BEGINNING: dict[str, type[Error]] = {"input_": InputError, "device_": DeviceError}


def of_code(code: str, message: str, hint: Optional[str] = None) -> Error:
    """The error of a code that the extension speaks of.

    >>> type(of_code("input_shape", "rank is 1, expected 2")).__name__
    'InputError'
    """
    for beginning, kind in _BY_BEGINNING.items():
        if code.startswith(beginning):
            return kind(code, message, hint)
    return _BY_CODE.get(code, ModelError)(code, message, hint)


def of_status(status: int, code: str, message: str, hint: Optional[str]) -> Error:
    """The error of an HTTP status with the code of its refusal.

    >>> type(of_status(401, "no_key", "a key is needed", None)).__name__
    'AccessError'
    """
    if status in (401, 403):
        return AccessError(code, message, hint)
    return _BY_CODE.get(code, ClusterError)(code, message, hint)
