"""A coordinator of this machine: where it is, and the key of its owner.

A data folder says where its coordinator listens. Its key goes to nobody but that coordinator, so whose socket it is
that listens there is looked up first.
"""

from __future__ import annotations

import ipaddress
import json
import os
import struct
import sys
from pathlib import Path
from shlex import quote
from typing import Any, Iterator, Optional, Union
from urllib.parse import urlsplit

from ._errors import AccessError, NotRunning

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
"""The system's tables of sockets."""
_LISTENS = "0A"
"""A socket that listens, in these."""
_ROOT = 0
"""The account that may do everything anyway."""
_RUNTIME_BYTES_MAX = 64 << 10
_KEY_BYTES_MAX = 256


def data_folder(data: Union[str, os.PathLike[str], None]) -> Path:
    """The data folder that is meant: the one named, that of `RADEON_DATA`, or the platform's."""
    named = data if data is not None else os.environ.get("RADEON_DATA")
    if named is not None:
        return Path(named).absolute()
    base = os.environ.get("XDG_DATA_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share"
    return folder / "radeon-cluster"


def address(data: Path) -> str:
    """Where the folder's coordinator listens for programs of this machine.

    Raises:
        NotRunning: No coordinator owns the folder.
        AccessError: Somebody else's program listens there.
    """
    found = _runtime(data)
    url = found.get("local") or found.get("http")
    if not isinstance(url, str) or not _is_owned(data):
        raise not_running(data)
    _check_listener(url, data)
    return url


def key(data: Path) -> str:
    """The key with which the folder's owner may do everything."""
    path = data / "local.key"
    try:
        with path.open("rb") as file:
            text = file.read(_KEY_BYTES_MAX + 2)
    except OSError as error:
        message = f"cannot read the key of the data folder's owner in {path}: {error.strerror}"
        hint = "its owner alone can; others have one made by radeon-cluster keys create, and give it as token"
        raise AccessError("bad_key", message, hint) from error
    return checked_key(text.decode("ascii", "replace"), str(path))


def checked_key(text: str, place: str) -> str:
    """A key as it can be sent; an error names the place that it is from, and not the key.

    >>> checked_key("two words", "the argument token")
    Traceback (most recent call last):
        ...
    legacy_gpu._errors.AccessError: the argument token holds no key, expected one line such as lgp_ID_SECRET
    hint: radeon-cluster keys create makes one
    """
    given = text.strip()
    if 0 < len(given) <= _KEY_BYTES_MAX and all("!" <= letter <= "~" for letter in given):
        return given
    message = f"{place} holds no key, expected one line such as lgp_ID_SECRET"
    raise AccessError("bad_key", message, "radeon-cluster keys create makes one")


def not_running(data: Path) -> NotRunning:
    """What is told where there is no coordinator."""
    message = f"no coordinator is running for data folder {data}"
    return NotRunning("not_running", message, f"start one with: radeon-cluster start --data {quote(str(data))}")


def _runtime(data: Path) -> dict[str, Any]:
    """The file in which a coordinator says where it is. One that does not parse means nothing."""
    try:
        with (data / "coordinator.json").open("rb") as file:
            found = json.loads(file.read(_RUNTIME_BYTES_MAX))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_owned(data: Path) -> bool:
    """Whether a coordinator lives that holds the folder's lock, which goes with its holder's life."""
    import fcntl

    try:
        with (data / "coordinator.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _check_listener(url: str, data: Path) -> None:
    """Refuses an address where another account listens than the lock's, this process's, or root."""
    try:
        parts = urlsplit(url)
        ip = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return
    accounts = _accounts(ip, parts.port or 80)
    if accounts is None:
        # Where there are no such tables, the lock alone says whose it is.
        return
    if not accounts:
        raise not_running(data)
    owner = (data / "coordinator.lock").stat().st_uid
    for account in accounts:
        if account not in (owner, os.geteuid(), _ROOT):
            message = (
                f"the server at {url} is run by account {account}, expected {owner}, whose data folder names it; "
                "it was told nothing"
            )
            hint = f"see with `getent passwd {account}` whose it is; url= and token= ask one that you trust"
            raise AccessError("not_the_owners", message, hint)


_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


def _accounts(ip: _Address, port: int) -> Optional[list[int]]:
    """The accounts of what listens at an address, if there are tables that may be read."""
    found: Optional[list[int]] = None
    for table in _TABLES:
        try:
            text = Path(table).read_text()
        except (FileNotFoundError, PermissionError):
            continue
        found = (found or []) + list(_listeners(text, ip, port))
    return found


def _listeners(table: str, ip: _Address, port: int) -> Iterator[int]:
    # The first line has the names of the columns.
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or fields[3] != _LISTENS:
            continue
        where, _, its_port = fields[1].partition(":")
        if int(its_port, 16) == port:
            found = _ip(where)
            if found == ip or found.is_unspecified:
                yield int(fields[7])


def _ip(digits: str) -> _Address:
    """An address as the tables have it: its bytes by fours, each as a number of this machine."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    order = "<" if sys.byteorder == "little" else ">"
    packed = struct.pack(f"{order}{len(words)}I", *words)
    if len(packed) == 4:
        return ipaddress.IPv4Address(packed)
    ip = ipaddress.IPv6Address(packed)
    return ip.ipv4_mapped or ip
