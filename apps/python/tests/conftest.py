"""What the tests share: the bundled model, a cluster of real processes, and a line for each test."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx_model as om
import pytest

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "apps/cli/assets/digits/digits.onnx"


@pytest.fixture(scope="session")
def digits():
    return DIGITS


@pytest.fixture(scope="session")
def binary():
    """The program `radeon-cluster`, as it was built for tests."""
    return os.environ["RADEON_CLUSTER"]


class Cluster:
    """A coordinator and its workers, for the tests of one file."""

    def __init__(self, binary, data, *flags):
        self.binary, self.data = binary, data
        command = ["start", "--workers", "1", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        self.answer = self.ask(*command, "--quic", "127.0.0.1:0", *flags)

    def ask(self, *command):
        command = [self.binary, *command, "--data", str(self.data), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    @property
    def url(self):
        return self.answer["http"]

    @property
    def key(self):
        return (self.data / "local.key").read_text().strip()

    def add(self, name, model):
        file = self.data.with_name(f"{name}.onnx")
        file.write_bytes(model)
        self.ask("models", "add", name, str(file))

    def stop(self):
        self.ask("stop", "--now")


@pytest.fixture(scope="session")
def cluster(binary, tmp_path_factory):
    running = Cluster(binary, tmp_path_factory.mktemp("cluster") / "data")
    image = om.tensor_type(om.FLOAT, ("n", 1, 8, 8))
    running.add("same", om.model([om.node("Identity", ["x"], ["y"])], [("x", image)], [("y", image)]))
    # Fails where it is asked for an element that is not there.
    ten = om.tensor("c", np.arange(10, dtype=np.float32))
    index, element = om.tensor_type(om.INT64, ()), om.tensor_type(om.FLOAT, ())
    running.add("pick", om.model([om.node("Gather", ["c", "i"], ["y"])], [("i", index)], [("y", element)], [ten]))
    running.add("slow", om.products(600))
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in ("RADEON_DATA", "RADEON_KEY"):
        monkeypatch.delenv(name, raising=False)


_reporter = None


def pytest_configure(config):
    global _reporter
    _reporter = config.pluginmanager.getplugin("terminalreporter")


def pytest_runtest_logreport(report):
    """A line that the runner of all suites counts."""
    verdict = None
    if report.failed:
        verdict = f"failed: {report.when}"
    elif report.skipped:
        verdict = f"skipped: {report.longrepr[2].removeprefix('Skipped: ')}"
    elif report.when == "call":
        verdict = "ok"
    if verdict is not None:
        print(f"\n{report.nodeid} … {verdict}")
