"""Whose socket it is that a data folder names: what the system's tables say."""

import ipaddress
import os
import socket
import struct

import pytest
from legacy_gpu import AccessError, NotRunning, _local

ADDRESS = ipaddress.ip_address("127.0.0.1")


def word(*octets):
    return "%08X" % struct.unpack("=I", bytes(octets))


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="procfs: the system has no tables of sockets")
def test_a_listener_is_found_with_its_account():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert _local._accounts(ADDRESS, port) == [os.geteuid()]
        with socket.create_connection(("127.0.0.1", port)) as stream:
            assert _local._accounts(ADDRESS, stream.getsockname()[1]) == []


def test_lines_are_read():
    local, mapped = word(127, 0, 0, 1), "0" * 16 + word(0, 0, 255, 255) + word(127, 0, 0, 1)
    for where, state, found in [
        (f"{local}:1F40", "0A", [1001]),
        ("00000000:1F40", "0A", [1001]),
        (f"{mapped}:1F40", "0A", [1001]),
        ("0" * 32 + ":1F40", "0A", [1001]),
        (f"{local}:1F40", "01", []),
        (f"{local}:1F41", "0A", []),
        (word(127, 0, 0, 2) + ":1F40", "0A", []),
    ]:
        table = f"head\n 0: {where} 0:0 {state} 0:0 00:0 0 1001 0 17 1\nodd\n"
        assert list(_local._listeners(table, ADDRESS, 8000)) == found, (where, state)


def test_a_server_of_another_account_is_told_nothing(tmp_path, monkeypatch):
    (tmp_path / "coordinator.lock").write_text("")
    for accounts, expected in [([], NotRunning), ([os.geteuid() + 1001], AccessError)]:
        monkeypatch.setattr(_local, "_accounts", lambda *_, found=accounts: found)
        with pytest.raises(expected):
            _local._check_listener("http://127.0.0.1:8000", tmp_path)
    for accounts in ([os.geteuid()], [0], None):
        monkeypatch.setattr(_local, "_accounts", lambda *_, found=accounts: found)
        _local._check_listener("http://127.0.0.1:8000", tmp_path)
