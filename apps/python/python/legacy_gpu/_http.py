"""Requests to one coordinator, over HTTP/1.1 as the standard library speaks it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import threading
from functools import partial
from typing import Any, Callable, Iterable, Mapping, Optional, TypeVar
from urllib.parse import urlsplit

from ._answers import AUTHORITY, failed, parsed, refused
from ._errors import Unreachable, UsageError

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long a coordinator may be silent where it has been asked for nothing that takes longer."""
_CONNECT_S = 5.0
_ERROR_BYTES_MAX = 1 << 20
_BODY_BYTES_MAX = 4 << 30
"""Outputs can be large; they are the user's own."""
_LENGTH = "Inference-Header-Content-Length"
"""The header that says where JSON ends and the bytes of tensors begin."""


class Server:
    """Where a coordinator is, and the key to use there, which nothing shows."""

    def __init__(self, url: str, token: Optional[str], ca: Optional[str]) -> None:
        # What stands before an @ may be a password, and what is behind a ? a key.
        shown = url.rpartition("@")[2].partition("?")[0]
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError:
            message = f"url is {shown!r}, expected http(s)://HOST:PORT, with a port below 65536"
            raise UsageError("usage", message) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("usage", f"url is {shown!r}, expected http://HOST:PORT or https://HOST:PORT")
        if parts.username is not None:
            message = f"url names a user at {shown!r}, expected http(s)://HOST:PORT alone"
            raise UsageError("usage", message, "give the key as token=")
        self._host = parts.hostname
        self._path = parts.path.rstrip("/")
        self._token = token
        self._tls: Optional[ssl.SSLContext] = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=ca)
            except (OSError, ssl.SSLError) as error:
                message = f"no certificates can be read in {ca or 'the system'}: {error}"
                raise UsageError("usage", message, AUTHORITY) from error
        elif ca is not None:
            message = f"ca is for a coordinator at https://, and url is {shown!r}"
            raise UsageError("usage", message, "leave ca out, or give the address that begins with https://")
        self.url = url.rstrip("/")

    def __repr__(self) -> str:
        return f"<{self.url}>"

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        key = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        return {**key, **more}


class Call:
    """One request under way, which another thread may end."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._lock = threading.Lock()
        self._aborted = False
        self._connection: Optional[http.client.HTTPConnection] = None
        # A connection forgets its socket where the answer's end is the connection's.
        self._socket: Optional[socket.socket] = None
        # How long nothing may be heard at present, in seconds.
        self._silence_s = _CONNECT_S

    def send(
        self,
        method: str,
        path: str,
        body: Iterable[bytes | memoryview] = (),
        headers: Mapping[str, str] = {},
        silence_s: float = PATIENCE_S,
    ) -> http.client.HTTPResponse:
        """The answer to a request, of which the body is yet to be read.

        Raises:
            Unreachable: There is no connection, or nothing is heard for `silence_s` seconds.
            Error: The coordinator refused.
        """
        parts = [memoryview(part) for part in body]
        length = sum(part.nbytes for part in parts)
        more = {**headers, "Content-Length": str(length)} if parts else dict(headers)
        connection = self.server._connect(_CONNECT_S)
        with self._lock:
            if self._aborted:
                raise self._ended()
            self._connection = connection
        try:
            connection.connect()
            with self._lock:
                self._socket = connection.sock
                if self._aborted:
                    raise self._ended()
            self.be_patient(silence_s)
            try:
                connection.request(
                    method, self.server._path + path, iter(parts) if parts else None, self.server._headers(more)
                )
            except (BrokenPipeError, ConnectionResetError):
                # A server that refuses a body may say so without having read it.
                pass
            response = connection.getresponse()
        except Exception as error:
            self.close()
            raise self._told(error) from None
        if not 200 <= response.status < 300:
            raise self._refusal(response)
        return response

    def read(self, response: http.client.HTTPResponse) -> bytearray:
        """The rest of an answer."""
        try:
            size = response.length
            if size is None:
                return bytearray(response.read(_BODY_BYTES_MAX))
            if size > _BODY_BYTES_MAX:
                raise Unreachable("bad_answer", f"the answer has {size} bytes, expected {_BODY_BYTES_MAX} at most")
            body, at = bytearray(size), 0
            while at < size:
                more = response.readinto(memoryview(body)[at:])
                if not more:
                    raise http.client.IncompleteRead(bytes(), size - at)
                at += more
            return body
        except Exception as error:
            raise self._told(error) from None
        finally:
            self.close()

    def line(self, response: http.client.HTTPResponse) -> bytes:
        """The next line of an answer; empty at its end."""
        try:
            return response.readline(1 << 20)
        except Exception as error:
            self.close()
            raise self._told(error) from None

    def be_patient(self, silence_s: float) -> None:
        """How long nothing may come of the answer from now on."""
        self._silence_s = silence_s
        if self._socket is not None:
            self._socket.settimeout(silence_s)

    def close(self) -> None:
        """Ends the connection."""
        connection = self._connection
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """Ends the request, of whichever thread it is: what waits there is woken."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # It has ended already.
                    pass

    def _ended(self) -> Unreachable:
        return Unreachable("cancelled", "the request was ended here: what waited for it was cancelled or closed")

    def _told(self, error: Exception) -> Exception:
        """What a failed request is for whoever made it."""
        if self._aborted:
            # A socket that another thread shuts down fails in many ways.
            return self._ended()
        return failed(self.server.url, error, self._silence_s, self._socket is not None)

    def _refusal(self, response: http.client.HTTPResponse) -> Exception:
        try:
            text = response.read(_ERROR_BYTES_MAX)
        except (OSError, http.client.HTTPException):
            text = b""
        self.close()
        return refused(self.server.url, response.status, text)


def get(call: Call, path: str, silence_s: float = PATIENCE_S) -> Any:
    """The JSON that a path answers."""
    return parsed(call.server.url, call.read(call.send("GET", path, silence_s=silence_s)))


def post(call: Call, path: str, body: Any, tensors: Iterable[memoryview] = ()) -> Any:
    """The JSON that a path answers to a JSON body with the bytes of tensors behind it."""
    head = json.dumps(body).encode()
    return parsed(call.server.url, call.read(call.send("POST", path, [head, *tensors], binary(len(head)))))


def binary(json_bytes: int) -> dict[str, str]:
    """The headers of a body of so much JSON, behind which tensors follow."""
    return {"Content-Type": "application/octet-stream", _LENGTH: str(json_bytes)}


def json_length(response: http.client.HTTPResponse) -> Optional[int]:
    """How much of an answer is JSON, where tensors follow it."""
    text = response.getheader(_LENGTH)
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


async def beside(work: Callable[[], T], abort: Callable[[], None]) -> T:
    """Does what blocks on a thread of its own. Where the waiting is cancelled, the work is aborted."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def tell(end: Callable[[], None]) -> None:
        # Whoever was cancelled hears nothing more.
        if not done.done():
            end()

    def run() -> None:
        try:
            result = work()
        except BaseException as raised:
            end = partial(done.set_exception, raised)
        else:
            end = partial(done.set_result, result)
        try:
            loop.call_soon_threadsafe(tell, end)
        except RuntimeError:
            # The loop has ended, and nobody waits any more.
            pass

    # One that waits for an answer keeps no interpreter from ending.
    threading.Thread(target=run, name="legacy_gpu request", daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        abort()
        raise
