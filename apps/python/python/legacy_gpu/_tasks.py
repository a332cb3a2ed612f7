"""Tasks of a cluster: what one is asked to do, and what becomes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Optional, Union
from urllib.parse import quote

from . import _arrays, _wire
from ._answers import member, optional, parsed
from ._errors import ClusterError, InputError, TaskFailed, WaitTimeout
from ._http import PATIENCE_S, Call, Server, beside, get

TASKS = "/api/v1/cluster/tasks"
_WAIT_S = 20.0
"""How long the coordinator is asked to wait for the end of a task before it answers."""
_TURN_S = 1.0
"""The same where other tasks wait for their turn to be asked for."""
_PAUSE_S = 0.2
"""Between two questions about a task where they are answered at once: as many wait as may."""
_OPEN = ("queued", "running")


@dataclass(frozen=True)
class Output:
    """An output of an earlier task as the input of another, which does not pass the client."""

    task_id: str
    """The task."""
    name: str
    """Its output."""


@dataclass(frozen=True)
class NewTask:
    """What a cluster is asked to do.

    >>> NewTask("digits", np.zeros((1, 1, 8, 8), np.float32), priority="high").model
    'digits'
    """

    model: str
    """The model's name, or `NAME/VERSION`."""
    inputs: Any
    """Arrays, or outputs of earlier tasks, by the names of inputs; the one array, of a model with one input."""
    durable: Optional[bool] = None
    """Whether it is kept through a crash of the coordinator; not unless this is True."""
    idempotency_key: Optional[str] = None
    """The same key with the same inputs stands for the same task."""
    priority: Optional[str] = None
    """`critical`, `high`, `normal`, `low` or `background`."""
    deadline_ms: Optional[int] = None
    """It fails if it is not done in so many milliseconds."""
    depends_on: Optional[Sequence[Union[Task, str, int]]] = None
    """Tasks, or their ids, that must have succeeded before; a number is a position in the same batch, from 0."""
    affinity: Optional[str] = None
    """Tasks of one model with the same text go to the same device where they can."""
    hedge_after_ms: Optional[int] = None
    """A second attempt begins beside one that has run for so many milliseconds; the first answer counts."""
    max_attempts: Optional[int] = None
    """How often it is tried before it fails, where attempts end without an answer."""
    retry_base_ms: Optional[int] = None
    """The first wait between two attempts is at most so many milliseconds; that doubles with each."""
    retry_max_ms: Optional[int] = None
    """No wait between two attempts is longer, in milliseconds."""
    run_limit_ms: Optional[int] = None
    """How many milliseconds one attempt may run."""

    def written(self, server: Server) -> tuple[dict[str, Any], list[memoryview]]:
        """The task as the interface takes it, and the bytes of its tensors."""
        described: list[dict[str, Any]] = []
        tensors: list[memoryview] = []
        for name, value in named(server, self.model, self.inputs).items():
            if isinstance(value, Output):
                described.append({"name": name, "from": {"task": value.task_id, "output": value.name}})
            else:
                head, parts = _wire.described(name, value)
                described.append(head)
                tensors += parts
        body: dict[str, Any] = {"model": self.model, "inputs": described}
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if value is not None:
                body[field.name] = value
        if self.depends_on is not None:
            body["depends_on"] = [_reference(other) for other in self.depends_on]
        return body, tensors


def _reference(other: Union[Task, str, int]) -> str:
    if isinstance(other, Task):
        return other.id
    return f"#{other}" if isinstance(other, int) else other


def named(server: Server, model: str, inputs: Any) -> Mapping[str, Any]:
    """Inputs by name. For a single one, the coordinator is asked what the model calls it.

    Raises:
        InputError: The model has not one input, and no dictionary is given.
    """
    if isinstance(inputs, Mapping):
        return inputs
    # NAME/VERSION is below its name there.
    name, _, version = model.partition("/")
    path = f"/api/v1/cluster/models/{quote(name, safe='')}"
    if version:
        path += f"/versions/{quote(version, safe='')}"
    specs = member(server.url, get(Call(server), path), "inputs", list)
    names = [member(server.url, spec, "name", str) for spec in specs]
    if len(names) != 1:
        raise InputError("bad_input", *_arrays.not_one(names))
    return {names[0]: inputs}


class Task:
    """A task that a cluster has accepted. `await task` is its result."""

    def __init__(self, server: Server, places: Places, task_id: str) -> None:
        self._server = server
        self._places = places
        self._id = task_id
        self._last: dict[str, Any] = {}

    @property
    def id(self) -> str:
        """Its id."""
        return self._id

    def __repr__(self) -> str:
        return f"<legacy_gpu.Task {self._id}>"

    def info(self) -> dict[str, Any]:
        """All that the coordinator says of it, asked for now unless it has ended before.

        Raises:
            ClusterError: It is not told now: with the code `no_leader` where coordinators change their leader.
        """
        if not self._has_ended():
            self._hear(get(Call(self._server), self._path()))
        return self._last

    def state(self) -> str:
        """`queued`, `running`, `succeeded`, `failed` or `cancelled`, as `info` says it."""
        return str(self.info()["state"])

    def output(self, name: str) -> Output:
        """One of its outputs, as the input of another task."""
        return Output(self._id, name)

    def cancel(self) -> str:
        """Cancels it unless it has ended, and answers its state then."""
        call = Call(self._server)
        return self._hear(parsed(self._server.url, call.read(call.send("DELETE", self._path()))))

    def result(self, timeout: Optional[float] = None) -> dict[str, Any]:
        """Waits for its end, and answers its outputs by name.

        Args:
            timeout: How many seconds to wait; as long as the coordinator lives without it.

        Raises:
            TaskFailed: It ended without outputs.
            WaitTimeout: It has not ended in time, and goes on.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            asked = time.monotonic()
            left = _WAIT_S if until is None else min(max(until - asked, 0.0), _WAIT_S)
            if self._has_ended() or self._ask(Call(self._server), left):
                return self._outputs()
            if until is not None and time.monotonic() >= until:
                message = f"task {self._id} has not ended after {timeout} s; it goes on"
                raise WaitTimeout("timeout", message, "wait again with result(), or end it with cancel()")
            time.sleep(max(0.0, min(_PAUSE_S - (time.monotonic() - asked), left)))

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        return self._awaited().__await__()

    async def _awaited(self) -> dict[str, Any]:
        await self.ended()
        return self._outputs()

    async def ended(self) -> Task:
        """Waits for its end, however it ends. Cancelling this wait leaves the task as it is."""
        places = self._places.of_loop()
        while not self._has_ended():
            asked = time.monotonic()
            async with places:
                wait_s = _TURN_S if places.locked() else _WAIT_S
                call = Call(self._server)
                await beside(lambda: self._ask(call, wait_s), call.abort)
            if not self._has_ended():
                await asyncio.sleep(max(0.0, _PAUSE_S - (time.monotonic() - asked)))
        return self

    def _path(self) -> str:
        return f"{TASKS}/{quote(self._id, safe='')}"

    def _has_ended(self) -> bool:
        return bool(self._last) and self._last["state"] not in _OPEN

    def _hear(self, told: Any) -> str:
        """Keeps what was told of it, and answers its state."""
        state = member(self._server.url, told, "state", str)
        self._last = told
        return state

    def _ask(self, call: Call, wait_s: float) -> bool:
        """Asks for its state, which may be answered as late as `wait_s`, and says whether it has ended."""
        path = self._path()
        try:
            try:
                silence_s = wait_s + PATIENCE_S
                self._hear(get(call, f"{path}?wait_ms={int(wait_s * 1000)}", silence_s=silence_s))
            except ClusterError as error:
                if error.code != "busy":
                    raise
                self._hear(get(Call(self._server), path))
        except ClusterError as error:
            # Of coordinators that change their leader, none knows for a moment; whoever waits asks again.
            if error.code != "no_leader":
                raise
        return self._has_ended()

    def _outputs(self) -> dict[str, Any]:
        url = self._server.url
        if self._last["state"] == "succeeded":
            return _wire.outputs(optional(url, self._last, "outputs", list) or [])
        error = optional(url, self._last, "error", dict) or {}
        code = str(error.get("code") or "task_failed")
        message = f"task {self._id} {self._last['state']}: {error.get('message') or 'without a reason'}"
        raise TaskFailed(code, message, "info() has all that is known of it", task_id=self._id)


class Places:
    """How many requests may wait for tasks at once: each takes a thread here, and room at the coordinator."""

    _MOST = 16

    def __init__(self) -> None:
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._places: Optional[asyncio.Semaphore] = None

    def of_loop(self) -> asyncio.Semaphore:
        """The places of the loop that runs."""
        loop = asyncio.get_running_loop()
        if self._places is None or self._loop is not loop:
            self._loop, self._places = loop, asyncio.Semaphore(self._MOST)
        return self._places
