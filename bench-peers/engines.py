#!/usr/bin/env python3
"""ONNX Runtime and OpenVINO behind the line protocol of `cargo xtask bench engine`.

    engines.py onnxruntime|openvino PRECISION MODEL THREADS NAME:DTYPE:DIMS:FILE…
"""

import sys
import time

import numpy as np

TYPES = {"f32": np.float32, "i64": np.int64}


def read(text):
    """An input written as NAME:DTYPE:DIMS:FILE."""
    name, dtype, dims, file = text.split(":", 3)
    shape = [int(size) for size in dims.split("x")]
    return name, np.fromfile(file, TYPES[dtype]).reshape(shape)


class OnnxRuntime:
    """The CPU provider with its defaults, all optimisations included."""

    def __init__(self, ort, precision, model, threads, inputs):
        if precision != "exact":
            raise ValueError(f"onnxruntime has no precision '{precision}', expected exact")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.inputs = inputs

    def run(self):
        return self.session.run(None, self.inputs)

    outputs = run


class OpenVino:
    """One stream, made for the shapes of the inputs; `fast` allows bf16."""

    def __init__(self, ov, precision, model, threads, inputs):
        core = ov.Core()
        network = core.read_model(model)
        network.reshape({name: list(array.shape) for name, array in inputs.items()})
        compiled = core.compile_model(
            network,
            "CPU",
            {
                "PERFORMANCE_HINT": "LATENCY",
                "NUM_STREAMS": "1",
                "INFERENCE_NUM_THREADS": str(threads),
                "INFERENCE_PRECISION_HINT": {"exact": "f32", "fast": "bf16"}[precision],
            },
        )
        self.request = compiled.create_infer_request()
        self.tensors = [ov.Tensor(array) for array in inputs.values()]
        for name, tensor in zip(inputs, self.tensors):
            self.request.set_tensor(name, tensor)
        self.count = len(compiled.outputs)

    def run(self):
        self.request.infer()

    def outputs(self):
        self.request.infer()
        return [self.request.get_output_tensor(i).data for i in range(self.count)]


def milliseconds(started):
    return (time.perf_counter() - started) * 1e3


def serve(name, precision, model, threads, *inputs):
    arrays = dict(read(text) for text in inputs)
    if name == "onnxruntime":
        import onnxruntime as module

        kind = OnnxRuntime
    else:
        import openvino as module

        kind = OpenVino
    print("ready", flush=True)
    started = time.perf_counter()
    engine = kind(module, precision, model, int(threads), arrays)
    print(f"loaded {milliseconds(started):.4f}", flush=True)
    for line in sys.stdin:
        command, _, rest = line.rstrip("\n").partition(" ")
        if command == "run":
            warm, timed = map(int, rest.split())
            for _ in range(warm):
                engine.run()
            times = []
            for _ in range(timed):
                started = time.perf_counter()
                engine.run()
                times.append(f"{milliseconds(started):.4f}")
            print("times", *times, flush=True)
        elif command == "save":
            outputs = [np.asarray(o, np.float32).reshape(-1) for o in engine.outputs()]
            np.concatenate(outputs).tofile(rest)
            print("saved", flush=True)
        else:
            raise ValueError(f"unknown command '{line}'")


if __name__ == "__main__":
    try:
        serve(*sys.argv[1:])
    except Exception as error:
        print("error", str(error).replace("\n", " "), flush=True)
