"""The protocol's inference as JSON for servers that leave the protocol to their users, and the time of
a model alone.

Usage: oip.py MODEL INPUT:DIMxDIM prints the time of one run by ONNX Runtime, as JSON.
"""

import json
import sys
import time

import numpy as np
import onnxruntime


class Model:
    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path)
        self.names = [output.name for output in self.session.get_outputs()]

    def infer(self, inputs):
        feeds = {
            i["name"]: np.asarray(i["data"], dtype=np.float32).reshape(i["shape"]) for i in inputs
        }
        values = self.session.run(None, feeds)
        outputs = [
            {"name": n, "shape": list(v.shape), "datatype": "FP32", "data": v.ravel().tolist()}
            for n, v in zip(self.names, values)
        ]
        return {"outputs": outputs}


def alone(path, text):
    name, dims = text.split(":")
    feeds = {name: np.random.default_rng(7).random([int(d) for d in dims.split("x")], np.float32)}
    session = onnxruntime.InferenceSession(path)
    times = []
    until = time.perf_counter() + 3
    while time.perf_counter() < until:
        began = time.perf_counter()
        session.run(None, feeds)
        times.append((time.perf_counter() - began) * 1e6)
    times.sort()
    return {"p50_us": times[len(times) // 2], "least_us": times[0]}


if __name__ == "__main__":
    print(json.dumps(alone(sys.argv[1], sys.argv[2])))
