#!/usr/bin/env python3
"""Compares this engine with ONNX Runtime on ONNX files, and times both in turns.

    ort_agreement.py RUN_ONNX MODEL.onnx... [--runs N] [--rounds N] [--threads N] [--batch N]
        [--sequence N] [--vocabulary N] [--side N]

RUN_ONNX is the built example `run_onnx`. The same random inputs go to both; the relative error is
the largest difference over the largest magnitude of ONNX Runtime's output. Exits with 1 when a
model fails or passes the limit. Needs numpy and onnxruntime.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

LIMIT = 1e-3
# For networks in bytes, whose steps are a 255th: a value rounded the other way moves later values.
LIMIT_OF_BYTES = 5e-2
TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


def inputs(session, options, folder):
    """Random inputs by name, also written as .npy files. An unknown dimension with `seq` in its name
    is the sequence; `height` is the side of an image and `width` three more, so that exchanged axes
    show; `a + b` is the sum of both; any other is the batch. Masks hide the end of every second
    sequence."""
    random = np.random.default_rng(7)

    def size(dim):
        if isinstance(dim, int):
            return dim
        if " + " in str(dim):
            return sum(size(part) for part in dim.split(" + "))
        named = {"height": options.side, "width": options.side + 3}
        return options.sequence if "seq" in str(dim) else named.get(dim, options.batch)

    arrays, args = {}, []
    for index, spec in enumerate(session.get_inputs()):
        shape = [size(dim) for dim in spec.shape]
        dtype = TYPES[spec.type]
        if np.issubdtype(dtype, np.floating):
            array = random.standard_normal(shape).astype(dtype)
        elif "mask" in spec.name:
            array = np.ones(shape, dtype)
            array[1::2, shape[-1] * 2 // 3 :] = 0
        else:
            largest = 2 if "type" in spec.name else options.vocabulary
            array = random.integers(0, largest, shape, dtype)
        path = folder / f"in{index}.npy"
        np.save(path, array)
        arrays[spec.name] = array
        args.append(f"{spec.name}={path}")
    return arrays, args


def of_bytes(model):
    """Whether a model's layers are quantised."""
    return model.stem.endswith("_qdq")


def compare(runner, model, options, folder):
    """Largest absolute and relative error, and both engines' milliseconds."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    if of_bytes(model):
        # Its kernels of bytes saturate on processors without VNNI, but not the floats that they replace.
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(model), settings, providers=["CPUExecutionProvider"])
    arrays, args = inputs(session, options, folder)
    expected = session.run(None, arrays)
    command = [runner, str(model), str(folder), str(options.threads), str(options.runs), *args]
    ours, theirs = [], []
    for _ in range(options.rounds):
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(run.stderr.strip())
        ours += [float(line) for line in run.stdout.split()][1:] or [float("nan")]
        for number in range(options.runs):
            start = time.perf_counter()
            session.run(None, arrays)
            if number > 0 or options.runs == 1:
                theirs.append((time.perf_counter() - start) * 1e3)
    absolute = relative = 0.0
    for index, reference in enumerate(expected):
        given = np.load(folder / f"{index}.npy")
        if given.shape != reference.shape or given.dtype != reference.dtype:
            raise RuntimeError(
                f"output {index} is {given.dtype} {given.shape}, "
                f"expected {reference.dtype} {reference.shape}"
            )
        reference, given = reference.astype(np.float64), given.astype(np.float64)
        if not np.array_equal(np.isfinite(given), np.isfinite(reference)):
            raise RuntimeError(f"output {index} is finite in other places")
        difference = np.abs(given - reference).max(initial=0.0)
        scale = np.abs(reference).max(initial=0.0)
        absolute = max(absolute, difference)
        relative = max(relative, difference / scale if scale > 0 else difference)
    return absolute, relative, min(ours), min(theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runner")
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=2, help="runs of each engine in a round")
    parser.add_argument("--rounds", type=int, default=1, help="turns that the engines take")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=2, help="size of unknown dimensions")
    parser.add_argument("--sequence", type=int, default=16, help="size of unknown sequences")
    parser.add_argument("--side", type=int, default=40, help="size of an unknown height")
    parser.add_argument("--vocabulary", type=int, default=1, help="integers are below this")
    options = parser.parse_args()
    print("| model | max absolute error | relative error | ours, ms | ONNX Runtime, ms |")
    print("|---|---|---|---|---|")
    failed = []
    for model in options.models:
        name = model.name.removesuffix(".onnx")
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = compare(options.runner, model, options, pathlib.Path(folder))
            except (RuntimeError, KeyError) as error:
                failed.append(f"{name}: {error}")
                continue
        absolute, relative, ours, theirs = result
        print(f"| {name} | {absolute:.2e} | {relative:.2e} | {ours:.2f} | {theirs:.2f} |", flush=True)
        limit = LIMIT_OF_BYTES if of_bytes(model) else LIMIT
        if not relative <= limit:
            failed.append(f"{name}: relative error {relative:.2e}, expected at most {limit:.0e}")
    for line in failed:
        print(line, file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
