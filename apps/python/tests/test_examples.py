"""The examples of docstrings and of the folder `examples`, run as they stand."""

import doctest
import importlib
import os
import pkgutil
import runpy
from pathlib import Path

import legacy_gpu
import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MODULES = [module.name for module in pkgutil.iter_modules(legacy_gpu.__path__) if module.name != "_native"]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name, digits):
    module = importlib.import_module(f"legacy_gpu.{name}")
    names = {"np": np, "digits": digits, "Session": legacy_gpu.Session, **vars(module)}
    found = doctest.testmod(module, extraglobs=names)
    assert found.failed == 0


def test_docstrings_are_tried_at_all(digits):
    finder = doctest.DocTestFinder()
    found = [finder.find(importlib.import_module(f"legacy_gpu.{name}")) for name in MODULES]
    assert sum(len(test.examples) for tests in found for test in tests) >= 15


def test_the_local_example(digits, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["local.py", str(digits)])
    runpy.run_path(str(EXAMPLES / "local.py"), run_name="__main__")
    assert "logits" in capsys.readouterr().out


def test_the_client_example(cluster, capsys, monkeypatch):
    monkeypatch.setitem(os.environ, "RADEON_DATA", str(cluster.data))
    runpy.run_path(str(EXAMPLES / "cluster.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert out.count("logits") == 8, out
