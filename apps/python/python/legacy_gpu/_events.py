"""What happens in a cluster, as it happens."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any, Optional

from ._errors import ClusterError, Unreachable, WaitTimeout
from ._http import PATIENCE_S, Call, Server, beside

_PATH = "/api/v1/cluster/events"
_PAUSE_S = 1.0
"""Before a listener comes back whose connection broke."""


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    id: str
    """Which event of which coordinator: what `events(after=...)` takes."""
    kind: str
    """What happened, such as `worker_lost`; `gap` where some events are not kept any more."""
    at_ms: int
    """When, in milliseconds since 1970."""
    data: dict[str, Any]
    """All that is told of it."""


class Feed:
    """A listener, which takes up where it was when its connection breaks."""

    def __init__(self, server: Server, after: Optional[str]) -> None:
        self._server = server
        self._after = after
        self._call = Call(server)
        self._response: Optional[HTTPResponse] = None
        self._closed = False

    def connect(self, silence_s: float = PATIENCE_S) -> HTTPResponse:
        """Listens from now on, or from the event on that was heard last."""
        self._call = Call(self._server)
        headers = {} if self._after is None else {"Last-Event-ID": self._after}
        self._response = self._call.send("GET", _PATH, headers=headers, silence_s=silence_s)
        if self._closed:
            self.close()
        return self._response

    def close(self) -> None:
        """Listens no more; what waits in another thread is woken."""
        self._closed = True
        self._call.abort()

    def next(self, timeout: Optional[float] = None) -> Event:
        """The next event.

        Raises:
            WaitTimeout: None came in `timeout` seconds.
            Unreachable: Nothing was heard of the coordinator for a minute, with `not_answering` for a code; or it
                could not be reached for as long.
        """
        heard = began = time.monotonic()
        while True:
            left = PATIENCE_S if timeout is None else began + timeout - time.monotonic()
            if left <= 0:
                hint = "ask again with after=, the id of the last event; without a timeout it waits on"
                raise WaitTimeout("timeout", f"no event came in {timeout} s", hint)
            try:
                response = self._response or self.connect(min(left, PATIENCE_S))
                self._call.be_patient(min(left, PATIENCE_S))
                event = self._block(response)
                heard = time.monotonic()
                if event is not None:
                    return event
            except ClusterError as error:
                self._response = None
                self._call.close()
                is_passing = isinstance(error, Unreachable) or error.code in ("busy", "no_leader")
                if self._closed or not is_passing or time.monotonic() - heard > PATIENCE_S:
                    raise
                if error.code != "not_answering":
                    time.sleep(min(_PAUSE_S, max(left, 0.0)))

    async def anext(self) -> Event:
        """The next event, for asyncio. Where the waiting is cancelled, the feed is closed."""
        return await beside(self.next, self.close)

    def _block(self, response: HTTPResponse) -> Optional[Event]:
        """The event of the next block, if it has one: others are signs of life."""
        data, place = "", self._after
        while True:
            line = self._call.line(response)
            if not line:
                message = f"{self._server.url} ended the stream of events, expected one that goes on"
                raise Unreachable("unreachable", message, "see with radeon-cluster status whether it still runs")
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            field, _, value = text.partition(":")
            if not text:
                break
            if field == "id":
                place = value.strip()
            elif field == "data":
                data += value.strip()
            elif not field:
                return None
        # Only a block that was heard to its end counts.
        self._after = place
        if not data:
            return None
        try:
            told = json.loads(data)
            return Event(place or "", str(told["event"]), int(told["at_ms"]), told)
        except (ValueError, KeyError, TypeError) as error:
            where = self._server.url
            message = f"{where} sent an event that cannot be read, expected JSON with event and at_ms: {error!r}"
            hint = "see whether a coordinator, and no other server, listens there"
            raise ClusterError("bad_answer", message, hint) from None
