"""The protocol's inference, as JSON and with binary tensors, for servers that leave the protocol to their
users, and the time of a model alone.

Usage: oip.py MODEL INPUT:DIMxDIM prints the time of one run by ONNX Runtime, as JSON.
"""

import json
import sys
import time

import numpy as np
import onnxruntime

JSON_BYTES = "inference-header-content-length"


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

    def infer_binary(self, body, json_bytes):
        """An answer to JSON that raw tensors follow, in the same form, and how much of it is JSON."""
        feeds, at = {}, json_bytes
        for i in json.loads(body[:json_bytes])["inputs"]:
            end = at + i["parameters"]["binary_data_size"]
            feeds[i["name"]] = np.frombuffer(body[at:end], dtype=np.float32).reshape(i["shape"])
            at = end
        values = self.session.run(None, feeds)
        outputs = [
            {
                "name": n,
                "shape": list(v.shape),
                "datatype": "FP32",
                "parameters": {"binary_data_size": v.nbytes},
            }
            for n, v in zip(self.names, values)
        ]
        head = json.dumps({"outputs": outputs}).encode()
        return head + b"".join(v.tobytes() for v in values), len(head)


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
