"""What the answers of a coordinator come to, and what is told where one is odd, late or missing."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import Any, Optional, TypeVar

from ._errors import Error, Unreachable, of_status

T = TypeVar("T")

_MISMATCHES = (62, 64)
"""What OpenSSL calls a certificate that is of another host name, or of another address."""
_WHO_LISTENS = "see whether a coordinator, and no other server, listens there"
AUTHORITY = "give ca=, the file of its authority, in PEM: that of a coordinator is pki/authority.pem in its data folder"
_LOOK = "look at its process, which may be stopped or overloaded, and at coordinator.log in its data folder"


def seconds(count: float) -> str:
    """A number of seconds as a message has it.

    >>> seconds(60.0), seconds(0.25), seconds(1e6 / 3)
    ('60', '0.25', '333333.33')
    """
    return f"{count:.2f}".rstrip("0").rstrip(".")


def failed(url: str, error: Exception, silence_s: float, is_connected: bool) -> Exception:
    """What a request is that failed before its answer was read: one that took longer than `silence_s`, say."""
    if isinstance(error, (TimeoutError, socket.timeout)):
        message = f"nothing was heard of the coordinator at {url} for {seconds(silence_s)} s"
        return Unreachable("not_answering", message, _LOOK)
    if isinstance(error, ssl.SSLError) and not is_connected:
        return _not_secure(url, error)
    if isinstance(error, http.client.HTTPException):
        if not isinstance(error, (http.client.IncompleteRead, ConnectionError)):
            hint = "see whether it is the coordinator's address; one with TLS begins with https://"
            return Unreachable("bad_answer", f"{url} does not answer in HTTP: {error!r}", hint)
    elif not isinstance(error, OSError):
        return error
    if is_connected:
        hint = "see with radeon-cluster status whether it still runs, then ask again"
        return Unreachable("unreachable", f"{url} broke the connection off: {error}", hint)
    hint = "start a coordinator with: radeon-cluster start; url= names one that listens elsewhere"
    return Unreachable("unreachable", f"cannot reach {url}: {error}", hint)


def _not_secure(url: str, error: ssl.SSLError) -> Error:
    if not isinstance(error, ssl.SSLCertVerificationError):
        hint = "see whether it speaks TLS; the address of one that does not begins with http://"
        return Unreachable("unreachable", f"cannot speak TLS with {url}: {error}", hint)
    message = f"{url} shows a certificate that is not trusted: {error.verify_message}"
    if error.verify_code in _MISMATCHES:
        return Unreachable("unreachable", message, "give a url= with a name or an address that the certificate has")
    return Unreachable("unreachable", message, AUTHORITY)


def refused(url: str, status: int, text: bytes) -> Error:
    """What an answer is that has another status than that of success."""
    if 300 <= status < 400:
        message = f"{url} sends its callers elsewhere ({status}), which is not followed: the key stays here"
        return Unreachable("redirected", message, "give the address that it means as url=, if you trust it")
    code = "not_found" if status == 404 else "refused"
    try:
        told = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        message = f"{url} answered {status} without a reason, expected JSON with an error"
        return of_status(status, code, message, _WHO_LISTENS)
    if not isinstance(told, dict):
        return of_status(status, code, str(told), None)
    message = told.get("message") or f"{url} answered {status} without a reason"
    hint = told.get("hint")
    return of_status(status, str(told.get("code") or code), str(message), None if hint is None else str(hint))


def parsed(url: str, text: bytes | bytearray | memoryview) -> Any:
    """An answer's JSON."""
    try:
        return json.loads(bytes(text))
    except ValueError as error:
        raise Unreachable("bad_answer", f"{url} answered what is not JSON: {error}", _WHO_LISTENS) from None


def member(url: str, told: Any, name: str, kind: type[T]) -> T:
    """What an answer has by a name.

    >>> member("http://127.0.0.1:8000", {"state": None}, "state", str)
    Traceback (most recent call last):
        ...
    legacy_gpu._errors.Unreachable: http://127.0.0.1:8000 answered without 'state', expected a str
    hint: see whether a coordinator, and no other server, listens there
    """
    found = told.get(name) if isinstance(told, dict) else None
    if isinstance(found, kind):
        return found
    message = f"{url} answered without {name!r}, expected a {kind.__name__}"
    raise Unreachable("bad_answer", message, _WHO_LISTENS)


def optional(url: str, told: Any, name: str, kind: type[T]) -> Optional[T]:
    """What an answer may have by a name; None where it has null, or no such name.

    >>> optional("http://127.0.0.1:8000", {"outputs": None}, "outputs", list) is None
    True
    """
    if isinstance(told, dict) and told.get(name) is None:
        return None
    return member(url, told, name, kind)


def whole(url: str, told: Any, kind: type[T]) -> T:
    """An answer that is all of one kind.

    >>> whole("http://127.0.0.1:8000", {}, list)
    Traceback (most recent call last):
        ...
    legacy_gpu._errors.Unreachable: http://127.0.0.1:8000 answered JSON of the type dict, expected a list
    hint: see whether a coordinator, and no other server, listens there
    """
    if isinstance(told, kind):
        return told
    message = f"{url} answered JSON of the type {type(told).__name__}, expected a {kind.__name__}"
    raise Unreachable("bad_answer", message, _WHO_LISTENS)
