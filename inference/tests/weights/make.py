"""Writes the golden files beside this script, each format by its own library.

Needs torch, safetensors and gguf. Each golden file has a file NAME.txt beside it, with a line of
shape and numbers for each tensor, as the library itself reads them.
"""

import pathlib

import gguf
import numpy
import safetensors.torch
import torch

HERE = pathlib.Path(__file__).parent


def values(tensor):
    numbers = torch.as_tensor(tensor).to(torch.float64).flatten().tolist()
    return " ".join(repr(float(n)) for n in numbers)


def describe(name, tensors):
    lines = []
    for key in sorted(tensors):
        shape = "x".join(str(n) for n in tensors[key].shape)
        lines.append(f"{key}\t{shape}\t{values(tensors[key])}\n")
    (HERE / f"{name}.txt").write_text("".join(lines))


def flat(value, name=""):
    if isinstance(value, torch.Tensor):
        return {name: value.detach()}
    inner = lambda key: f"{name}.{key}" if name else str(key)
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(item, inner(key)).items()}
    if isinstance(value, (list, tuple)):
        return {k: v for i, item in enumerate(value) for k, v in flat(item, inner(i)).items()}
    return {}


def main():
    torch.manual_seed(7)
    base = torch.arange(24.0).reshape(2, 3, 4)
    tensors = {
        "f32": base, "f16": base[0].half() / 7, "bf16": base[1].bfloat16() / 7,
        "f64": base[0].double() / 3, "i64": torch.tensor([-1, 2**40]), "i32": torch.tensor([[-5]], dtype=torch.int32),
        "i16": torch.tensor([-300], dtype=torch.int16), "i8": torch.tensor([-7, 7], dtype=torch.int8),
        "u8": torch.tensor([0, 255], dtype=torch.uint8), "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3),
    }
    small = {"e4m3": torch.tensor([448.0, -0.5]).to(torch.float8_e4m3fn), "e5m2": torch.tensor([3.0]).to(torch.float8_e5m2)}
    safetensors.torch.save_file({**tensors, **small}, HERE / "all.safetensors", metadata={"format": "pt"})
    describe("all.safetensors", {**tensors, **small})

    linear = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    views = {
        "transposed": base.permute(2, 0, 1), "part": base[:, 1:, ::2],
        "expanded": torch.tensor([[1.5], [2.5]]).expand(2, 3), "tied": base,
    }
    checkpoint = {
        "epoch": 3, "state_dict": linear.state_dict(), "tensors": tensors, "views": views,
        "parameter": linear[0].weight, "list": [torch.ones(2), {"a": torch.zeros(1)}],
    }
    for name, options, more in [
        ("zip.pt", {}, {"small": small, "u16": torch.tensor([65535], dtype=torch.uint16)}),
        ("legacy.pt", {"_use_new_zipfile_serialization": False}, {}),
    ]:
        torch.save({**checkpoint, **more}, HERE / name, **options)
        describe(name, flat({**checkpoint, **more}))

    writer = gguf.GGUFWriter(HERE / "quants.gguf", "test")
    writer.add_uint32("answer", 42)
    writer.add_array("words", ["a", "bc"])
    expected = {}
    rows = numpy.random.default_rng(7).standard_normal((1, 256)).astype(numpy.float32)
    types = gguf.GGMLQuantizationType
    for kind in [types.Q4_0, types.Q4_1, types.Q5_0, types.Q5_1, types.Q8_0, types.F16, types.BF16]:
        data = gguf.quants.quantize(rows[:, :64], kind)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        expected[kind.name] = torch.from_numpy(gguf.quants.dequantize(data, kind).astype(numpy.float32)).reshape(1, 64)
    noise = numpy.random.default_rng(8)
    for kind in [types.Q2_K, types.Q3_K, types.Q4_K, types.Q5_K, types.Q6_K]:
        # The library only reads these: random blocks whose scales are small numbers.
        size = gguf.GGML_QUANT_SIZES[kind][1]
        data = noise.integers(0, 256, (1, size), dtype=numpy.uint8)
        scales = {types.Q2_K: [80, 82], types.Q3_K: [108], types.Q6_K: [208]}.get(kind, [0, 2])
        for at in scales:
            data[0, at : at + 2] = numpy.frombuffer(numpy.float16(0.01 + at / 1000).tobytes(), numpy.uint8)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        expected[kind.name] = torch.from_numpy(gguf.quants.dequantize(data, kind).astype(numpy.float32))
    plain = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    writer.add_tensor("plain", plain)
    expected["plain"] = torch.from_numpy(plain)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    describe("quants.gguf", expected)

    class Evil:
        def __reduce__(self):
            import os

            return os.system, ("true",)

    torch.save({"weight": Evil()}, HERE / "system.pt")


if __name__ == "__main__":
    main()
