"""Runs a model on this machine, on random numbers.

    python local.py MODEL.onnx
"""

from __future__ import annotations

import sys

import legacy_gpu
import numpy as np


def main(path: str) -> None:
    for device in legacy_gpu.devices():
        print(f"{device.id}: {device.name}, {device.reason or 'usable'}")
    session = legacy_gpu.Session(path)
    print(f"{path} runs on {session.device}")
    random = np.random.default_rng()
    inputs = {}
    for value in session.inputs:
        # A length that is open is taken to be 1.
        shape = [length if isinstance(length, int) else 1 for length in value.shape or ()]
        inputs[value.name] = random.random(shape).astype(value.dtype)
    for name, output in session.run(inputs).items():
        print(f"{name}: {output.dtype} {output.shape}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python local.py MODEL.onnx")
    main(sys.argv[1])
