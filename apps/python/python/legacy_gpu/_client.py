"""A cluster's client."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Optional, TypeVar, Union
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from . import _local, _wire
from ._answers import member, optional, parsed, whole
from ._errors import InputError, UsageError
from ._events import Event, Feed
from ._http import PATIENCE_S, Call, Server, binary, get, json_length, post
from ._tasks import TASKS, NewTask, Output, Places, Task, named

T = TypeVar("T")

_BASE = "/api/v1/cluster"


class Client:
    """A client of one cluster, over its REST interface.

    Without an address it is the cluster that `radeon-cluster start` runs on this machine, and the key of its
    owner is used, as the command line does. Any number of threads may share a client.

    Args:
        url: The coordinator's address, as in `https://host:8000`.
        token: A key; without it that in `RADEON_KEY`, or of the data folder.
        data: The coordinator's data folder, in the place of `url`; without it that in `RADEON_DATA`, or the
            platform's.
        ca: The file with the certificates to trust, PEM; those of public authorities without it.

    Raises:
        NotRunning: No coordinator runs for the data folder.
        AccessError: The key cannot be read, or is none.
        UsageError: The address is none, or arguments contradict each other.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        data: Union[str, os.PathLike[str], None] = None,
        ca: Union[str, os.PathLike[str], None] = None,
    ) -> None:
        if url is not None and data is not None:
            message = "url and data both name a coordinator, expected one of them"
            raise UsageError("usage", message, "leave data out to ask the coordinator at url")
        token = _token(token)
        if url is None:
            folder = _local.data_folder(data)
            url = _local.address(folder)
            token = token or _local.key(folder)
        self._server = Server(url, token, None if ca is None else os.fspath(ca))
        self._places = Places()

    @property
    def url(self) -> str:
        """The coordinator's address."""
        return self._server.url

    def __repr__(self) -> str:
        return f"<legacy_gpu.Client of {self.url}>"

    def run(self, model: str, inputs: Any, timeout: float = PATIENCE_S) -> dict[str, Any]:
        """One inference: waits for it, and answers the outputs by name.

        It is not tried again where this client ends; `submit` is for work that should be done whatever becomes
        of who asked for it.

        Args:
            model: The model's name, or `NAME/VERSION`.
            inputs: Arrays by the names of inputs; or the one array, where the model has one input.
            timeout: How many seconds nothing may be heard of the coordinator.

        Raises:
            InputError: An input that a cluster does not take.
            Unreachable: Nothing was heard for so long, with `not_answering` for a code; or there is no connection.
            ClusterError: The coordinator refused, or the model failed.
        """
        if not timeout > 0:
            raise UsageError("usage", f"timeout is {timeout} s, expected more than 0")
        described, tensors = [], []
        for name, value in named(self._server, model, inputs).items():
            if isinstance(value, Output):
                message = f"input '{name}' is an output of task {value.task_id}, expected an array"
                raise InputError("input_invalid", message, "submit takes outputs of other tasks")
            head, parts = _wire.described(name, value)
            described.append(head)
            tensors += parts
        body = {"inputs": described, "parameters": {"binary_data_output": True}}
        text = json.dumps(body).encode()
        name, _, version = model.partition("/")
        path = f"/v2/models/{quote(name, safe='')}"
        path += f"/versions/{quote(version, safe='')}/infer" if version else "/infer"
        call = Call(self._server)
        response = call.send("POST", path, [text, *tensors], binary(len(text)), silence_s=timeout)
        length = json_length(response)
        answer = memoryview(call.read(response))
        length = len(answer) if length is None else min(length, len(answer))
        told = parsed(self.url, answer[:length])
        return _wire.outputs(optional(self.url, told, "outputs", list) or [], answer[length:])

    def submit(self, model: str, inputs: Any, **options: Any) -> Task:
        """Gives the cluster a task, which it does whatever becomes of this client.

        Args:
            model: The model's name, or `NAME/VERSION`.
            inputs: Arrays, or outputs of earlier tasks, by the names of inputs; or the one array.
            options: What else `NewTask` has: priority, durable, deadline_ms, depends_on and so on.
        """
        body, tensors = NewTask(model, inputs, **options).written(self._server)
        return self._accepted(post(Call(self._server), TASKS, body, tensors))

    def batch(self, tasks: Iterable[NewTask]) -> list[Task]:
        """Gives the cluster several tasks at once: all of them are accepted, or none."""
        bodies, tensors = [], []
        for task in tasks:
            body, parts = task.written(self._server)
            bodies.append(body)
            tensors += parts
        accepted = post(Call(self._server), f"{TASKS}/batch", {"tasks": bodies}, tensors)
        return [self._accepted(one) for one in member(self.url, accepted, "tasks", list)]

    def task(self, task_id: str) -> Task:
        """A task that was accepted before, by its id."""
        return Task(self._server, self._places, task_id)

    def tasks(
        self, state: Optional[str] = None, model: Optional[str] = None, limit: Optional[int] = None
    ) -> Iterator[dict[str, Any]]:
        """What the coordinator says of tasks, newest first, without their outputs; it is asked page by page.

        Args:
            state: Only those in this state.
            model: Only those of this model.
            limit: So many at most; all that it remembers without it.
        """
        given = {"state": state, "model": model}
        query = {name: value for name, value in given.items() if value is not None}
        while limit is None or limit > 0:
            call = Call(self._server)
            page = {**query, "limit": str(min(limit, 100))} if limit is not None else query
            response = call.send("GET", f"{TASKS}?{urlencode(page)}")
            link = response.getheader("Link", "")
            found = whole(self.url, parsed(self.url, call.read(response)), list)[:limit]
            yield from found
            limit = None if limit is None else limit - len(found)
            after = parse_qs(urlsplit(link.partition(">")[0].lstrip("<")).query).get("after")
            if not after:
                return
            query["after"] = after[0]

    def models(self) -> list[dict[str, Any]]:
        """Every version of every model."""
        return self._get("models", list)

    def workers(self) -> list[dict[str, Any]]:
        """Every worker."""
        return self._get("workers", list)

    def stats(self) -> dict[str, Any]:
        """Totals of tasks and workers since the coordinator started."""
        return self._get("stats", dict)

    def events(
        self, after: Optional[str] = None, timeout: Optional[float] = None
    ) -> Iterator[Event]:
        """What happens in the cluster, from this call on, as it happens.

        A connection that breaks is made anew, and nothing is missed meanwhile.

        Args:
            after: The event that was heard last, by its id.
            timeout: How many seconds to wait for each event; as long as the coordinator lives without it.

        Raises:
            WaitTimeout: No event came in time.
        """
        feed = Feed(self._server, after)
        feed.connect()
        return _told(feed, timeout)

    async def aevents(self, after: Optional[str] = None) -> AsyncIterator[Event]:
        """What happens in the cluster, for asyncio: as `events`, but it listens from the first step on."""
        feed = Feed(self._server, after)
        try:
            while True:
                yield await feed.anext()
        finally:
            feed.close()

    async def as_completed(self, tasks: Iterable[Task]) -> AsyncIterator[Task]:
        """Tasks in the order in which they are seen to end, with or without a result.

        Of many tasks the coordinator is asked for a few at a time, those that were given first to begin with.
        """
        open_ones = {asyncio.ensure_future(task.ended()) for task in tasks}
        try:
            while open_ones:
                done, open_ones = await asyncio.wait(
                    open_ones, return_when=asyncio.FIRST_COMPLETED
                )
                for one in done:
                    yield one.result()
        finally:
            for one in open_ones:
                one.cancel()

    def _accepted(self, told: Any) -> Task:
        return self.task(member(self.url, told, "task_id", str))

    def _get(self, path: str, kind: type[T]) -> T:
        return whole(self.url, get(Call(self._server), f"{_BASE}/{path}"), kind)


def _token(given: Optional[str]) -> Optional[str]:
    if given is not None:
        return _local.checked_key(given, "the argument token")
    named_there = os.environ.get("RADEON_KEY")
    if named_there is None:
        return None
    return _local.checked_key(named_there, "the environment variable RADEON_KEY")


def _told(feed: Feed, timeout: Optional[float]) -> Iterator[Event]:
    try:
        while True:
            yield feed.next(timeout)
    finally:
        feed.close()
