#!/usr/bin/env python3
"""Writes folders of `fused/` that are missing: a model of one operator, inputs, and the outputs that
ONNX Runtime gives.

    fused_goldens.py [FOLDER]

Where ONNX Runtime has no CPU kernel, or rounds where this engine does not, the outputs are
those of a reference: the same function written out in other operators. Needs ml_dtypes, numpy,
onnx and onnxruntime 1.31.
"""

import pathlib
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
FLOAT, I8, U8, I32 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32
rng = np.random.default_rng(7)
cases = []


def f(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def q(dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def i32(*values):
    return np.array(values, np.int32)


def i64(*values):
    return np.array(values, np.int64)


def f32(*values):
    return np.array(values, np.float32)


def node(op, inputs, outputs="y", domain=MS, **attributes):
    return helper.make_node(op, inputs.split(","), outputs.split(","), domain=domain, **attributes)


def onnx_node(op, inputs, outputs="y", **attributes):
    return node(op, inputs, outputs, "", **attributes)


def case(name, nodes, inputs, constants=None, types=None, reference=None):
    """`types` are the outputs' dtypes, f32 where absent; `inputs` and `constants` arrays by name."""
    cases.append((name, nodes, inputs, constants or {}, types or {}, reference))


def single(name, op, inputs, outputs="y", constants=None, types=None, reference=None, **attributes):
    """One node, its inputs in order; `None` is an absent one."""
    everything = {**inputs, **(constants or {})}
    names = ",".join(name if everything[name] is not None else "" for name in everything)
    given = {k: v for k, v in inputs.items() if v is not None}
    case(name, [node(op, names, outputs, **attributes)], given, constants, types, reference)


def model(nodes, inputs, constants, types):
    read = {name for n in nodes for name in n.input}
    results = [name for n in nodes for name in n.output if name and name not in read]

    def described(name, array):
        # The first axis is unknown, as a batch is in most models.
        shape = [f"{name}_0", *array.shape[1:]] if array.ndim > 1 else list(array.shape)
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), shape
        )

    graph = helper.make_graph(
        nodes,
        "g",
        [described(name, array) for name, array in inputs.items()],
        [helper.make_tensor_value_info(n, types.get(n, FLOAT), None) for n in results],
        [numpy_helper.from_array(constants[name], name) for name in constants if name in read],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def write(root, name, nodes, inputs, constants, types, reference):
    proto = model(nodes, inputs, constants, types)
    answers = model(reference, inputs, constants, types) if reference else proto
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(answers.SerializeToString(), options, ["CPUExecutionProvider"])
    outputs = session.run([o.name for o in proto.graph.output], inputs)
    folder = root / name
    folder.mkdir()
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    for i, (key, array) in enumerate(inputs.items()):
        tensor = numpy_helper.from_array(array, key)
        (folder / f"input_{i}.pb").write_bytes(tensor.SerializeToString())
    for i, (value, array) in enumerate(zip(proto.graph.output, outputs)):
        tensor = numpy_helper.from_array(array, value.name)
        (folder / f"output_{i}.pb").write_bytes(tensor.SerializeToString())


# Attention with grouped keys: 4 heads of the query and 2 of the key, 16 wide. Key lengths are the
# number of keys less one.
def gqa(
    name,
    batch=1,
    length=4,
    past=0,
    buffer=None,
    lengths=None,
    packed=False,
    total=None,
    outputs="y,k,v",
    position=None,
    bias=None,
    sink=None,
    **attributes,
):
    h, kv, size = 4, 2, 16
    buffer = past if buffer is None else buffer
    inputs = {"query": f(batch, length, (h + 2 * kv if packed else h) * size)}
    for part in "key", "value":
        inputs[part] = None if packed else f(batch, length, kv * size)
    for part in "past_key", "past_value":
        inputs[part] = f(batch, kv, buffer, size) if buffer else None
    lengths = [past + length - 1] * batch if lengths is None else lengths
    inputs["seqlens"] = i32(*lengths)
    constants = {"total": i32(past + length if total is None else total)}
    names = "query,key,value,past_key,past_value,seqlens,total".split(",")
    rotary = attributes.get("do_rotary", 0)
    if rotary:
        angles = np.arange(32)[:, None] / 10.0 ** (np.arange(8) / 4)
        constants["cos"] = np.cos(angles).astype(np.float32)
        constants["sin"] = np.sin(angles).astype(np.float32)
    names += ["cos" if rotary else "", "sin" if rotary else ""]
    for key, array in ("position", position), ("bias", bias), ("sink", sink):
        if array is not None:
            inputs[key] = array
        names.append(key if array is not None else "")
    given = {k: v for k, v in inputs.items() if v is not None}
    names = [n if n in given or n in constants else "" for n in names]
    while not names[-1]:
        names.pop()
    made = node(
        "GroupQueryAttention", ",".join(names), outputs, num_heads=h, kv_num_heads=kv, **attributes
    )
    case(name, [made], given, constants)


gqa("gqa")
gqa("gqa_packed_rotary", batch=2, packed=True, do_rotary=1)
gqa("gqa_ragged_prompt", batch=3, length=5, lengths=[4, 2, 0], do_rotary=1)
gqa("gqa_decode", batch=2, length=1, past=5, lengths=[5, 3], do_rotary=1, rotary_interleaved=1)
gqa("gqa_buffer", batch=2, length=1, past=5, buffer=9, lengths=[5, 2], packed=True, do_rotary=1)
gqa("gqa_chunk", length=3, past=4, do_rotary=1)
gqa("gqa_window", length=6, local_window_size=2)
gqa(
    "gqa_window_decode", batch=2, length=1, past=6, lengths=[6, 4], local_window_size=3, softcap=2.0
)
gqa("gqa_softcap_scale", softcap=1.5, scale=0.5)
gqa("gqa_smooth", smooth_softmax=1)
gqa("gqa_smooth_softcap_window", length=6, smooth_softmax=1, softcap=1.0, local_window_size=3)
gqa("gqa_sink", sink=f(4))
gqa("gqa_bias", batch=2, length=3, past=0, bias=f(1, 4, 3, 3))
gqa("gqa_positions", batch=1, length=3, past=4, do_rotary=1, position=np.array([[9, 10, 11]]))
gqa("gqa_positions_prompt", batch=1, length=3, do_rotary=1, position=np.array([[5, 9, 11]]))
gqa("gqa_everywhere", length=3, causal=0)

# Rotary embedding: caches of 12 positions, 8 angles.
angles = np.arange(12)[:, None] / 10.0 ** (np.arange(8) / 4)
caches = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
ids = rng.integers(0, 12, (2, 3))
single("rotary", "RotaryEmbedding", {"x": f(2, 3, 48), "ids": ids}, constants=caches)
single("rotary_offset", "RotaryEmbedding", {"x": f(2, 3, 48), "ids": i64(7)}, constants=caches)
single(
    "rotary_heads_first",
    "RotaryEmbedding",
    {"x": f(2, 5, 3, 16), "ids": ids},
    constants=caches,
    interleaved=1,
)
single(
    "rotary_part",
    "RotaryEmbedding",
    {"x": f(2, 3, 72), "ids": ids},
    constants=caches,
    num_heads=3,
    rotary_embedding_dim=16,
)
single(
    "rotary_packed",
    "RotaryEmbedding",
    {"x": f(2, 3, 48), "ids": ids},
    constants=caches,
    scale=1.0,
    is_packed_batching=1,
)


# Attention's masks: 2 heads of 4, batch 2, 3 positions.
def attention(name, mask, past=0, bias=False, outputs="y", **attributes):
    inputs = {"x": f(2, 3, 8), "mask": mask}
    constants = {"w": f(8, 24), "b": f(24)}
    names = "x,w,b," + ("mask" if mask is not None else "")
    if mask is None:
        del inputs["mask"]
    if past or bias:
        names += ",past" if past else ","
    if past:
        inputs["past"] = f(2, 2, 2, past, 4)
    if bias:
        names += ",bias"
        inputs["bias"] = f(1, 2, 3, 3 + past)
    case(name, [node("Attention", names, outputs, num_heads=2, **attributes)], inputs, constants)


attention("attention_lengths", i32(2, 3))
attention("attention_lengths_causal", i32(1, 2), unidirectional=1)
attention("attention_ranges", i32(2, 3, 1, 0))
attention("attention_ranges_past", i32(4, 5, 1, 0), past=2, outputs="y,present")
attention("attention_mask_nothing", np.array([[0, 0, 0], [1, 0, 1]], np.int32))
attention(
    "attention_mask_left_causal", np.array([[0, 0, 1], [0, 1, 1]], np.int32), unidirectional=1
)
attention("attention_mask_queries", rng.integers(0, 2, (2, 3, 3)).astype(np.int32))
attention(
    "attention_mask_queries_past",
    rng.integers(0, 2, (2, 3, 5)).astype(np.int32),
    past=2,
    outputs="y,present",
    mask_filter_value=-50.0,
)
attention("attention_mask_bias", np.array([[0, 1, 1], [1, 1, 0]], np.int32), bias=True)
attention("attention_mask_dummy", np.array([[0], [1]], np.int32))
attention("attention_zeros", None, do_rotary=0, past_present_share_buffer=0)


def mha(name, mask, past=0, bias=False, cross=False, outputs="y", keys=3, add=False, **attributes):
    inputs = {"q": f(2, 3, 8)}
    inputs["k"] = f(2, 2, keys, 4) if cross else f(2, keys, 8)
    inputs["v"] = f(2, 2, keys, 4) if cross else f(2, keys, 8 if past else 12)
    constants = {"b": f(24 if cross else 28)} if bias else {}
    names = "q,k,v," + ("b" if bias else "") + "," + ("mask" if mask is not None else "")
    if mask is not None:
        inputs["mask"] = mask
    names += ",bias" if add else ","
    if add:
        inputs["bias"] = f(1, 2, 3, keys + past)
    if past:
        inputs["pk"], inputs["pv"] = f(2, 2, past, 4), f(2, 2, past, 4)
        names += ",pk,pv"
    case(
        name,
        [node("MultiHeadAttention", names.rstrip(","), outputs, num_heads=2, **attributes)],
        inputs,
        constants,
    )


mha("mha_lengths", i32(2, 4), keys=4)
mha("mha_mask_queries", rng.integers(0, 2, (2, 3, 4)).astype(np.int32), keys=4, add=True)
mha("mha_mask_past", rng.integers(0, 2, (2, 5)).astype(np.int32), past=2, outputs="y,k2,v2")
mha("mha_cross", None, cross=True, keys=5, bias=False)
mha("mha_cross_bias", None, cross=True, keys=5, bias=True)
mha("mha_bias_widths", None, bias=True, keys=4)
mha("mha_scores", None, keys=4, outputs="y,k2,v2,qk")


def q_attention(
    name, dtype=np.int8, columns=False, mask=None, past=False, outputs="y", **attributes
):
    inputs = {"x": q(np.uint8, 2, 3, 8)}
    n = 24 if columns else 1
    scales = np.abs(f(n)) / 50 + np.float32(0.01)
    constants = {
        "w": q(dtype, 8, 24),
        "b": f(24),
        "xs": np.float32(0.02),
        "ws": scales if columns else scales[0],
    }
    names = (
        "x,w,b,xs,ws," + ("mask" if mask is not None else "") + ",xz,wz" + (",past" if past else "")
    )
    constants["xz"] = np.uint8(120)
    constants["wz"] = q(dtype, 24) // 16 if columns else dtype(3)
    if mask is not None:
        inputs["mask"] = mask
    if past:
        inputs["past"] = f(2, 2, 2, 2, 4)
    case(name, [node("QAttention", names, outputs, num_heads=2, **attributes)], inputs, constants)


q_attention("q_attention")
q_attention("q_attention_columns", np.uint8, True, i32(2, 3))
q_attention(
    "q_attention_past",
    mask=np.array([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]], np.int32),
    past=True,
    outputs="y,present",
    unidirectional=1,
)

# Other fused operators.
window = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 1, 1]}
single("nhwc_max_pool", "NhwcMaxPool", {"x": q(np.uint8, 2, 5, 6, 3)}, types={"y": U8}, **window)
single(
    "nhwc_max_pool_ceil",
    "NhwcMaxPool",
    {"x": q(np.int8, 1, 5, 6, 3)},
    types={"y": I8},
    kernel_shape=[2, 2],
    strides=[2, 2],
    dilations=[2, 1],
    ceil_mode=1,
)

embedding = {"w": f(9, 8), "p": f(5, 8), "s": f(2, 8), "g": f(8), "b": f(8)}


def words():
    return {
        "ids": rng.integers(0, 9, (2, 4)).astype(np.int32),
        "segments": rng.integers(0, 2, (2, 4)).astype(np.int32),
    }


def embed(name, mask, outputs):
    inputs = words()
    if mask:
        inputs["mask"] = i32(*[[1, 1, 0, 1], [0, 1, 0, 0]])
    names = "ids,segments,w,p,s,g,b" + (",mask" if mask else "")
    case(
        name,
        [node("EmbedLayerNormalization", names, outputs, mask_index_type=1)],
        inputs,
        embedding,
        {"index": I32},
    )


embed("embedln_mask", True, "y,index")
embed("embedln_no_mask", False, "y,index,sum")

quantized = {}
for key, array in embedding.items():
    quantized[key] = q(np.uint8, *array.shape)
parts = "w,p,s,g,b".split(",")
for key in parts:
    quantized[key + "_scale"] = np.float32(rng.uniform(0.005, 0.02))
for key in parts:
    quantized[key + "_zero"] = np.uint8(rng.integers(100, 150))


def q_embed(name, segments, mask):
    inputs = words()
    constants = dict(quantized)
    if not segments:
        del inputs["segments"]
        for key in "s", "s_scale", "s_zero":
            del constants[key]
    inputs["mask"] = i32(*[[1, 1, 1, 0], [1, 1, 0, 0]])
    names = [
        "ids",
        "segments",
        *parts,
        "mask",
        *[p + "_scale" for p in parts],
        *[p + "_zero" for p in parts],
    ]
    names = ",".join(n if n in inputs or n in constants else "" for n in names)
    case(
        name,
        [node("QEmbedLayerNormalization", names, "y,index", epsilon=1e-5)],
        inputs,
        constants,
        {"index": I32},
    )


q_embed("q_embedln", True, True)
q_embed("q_embedln_no_segments", False, True)

single(
    "bias_split_gelu",
    "BiasSplitGelu",
    {"x": f(2, 3, 8)},
    constants={"b": f(8)},
    reference=[
        onnx_node("Add", "x,b", "sum"),
        onnx_node("Split", "sum", "left,right", axis=-1, num_outputs=2),
        node("Gelu", "right", "gate"),
        onnx_node("Mul", "left,gate"),
    ],
)
single("inverse", "Inverse", {"x": f(3, 5, 5)})
single("inverse_one", "Inverse", {"x": f(4, 4).astype(np.float64)}, types={"y": TensorProto.DOUBLE})
single("trans_mat_mul", "TransposeMatMul", {"a": f(2, 4, 3), "b": f(2, 4, 5)}, transA=1, alpha=0.5)
left = {(0, 0): (2, 3, 4, 5), (1, 0): (2, 3, 5, 4), (0, 1): (4, 2, 3, 5), (1, 1): (5, 2, 3, 4)}
right = {(0, 0): (2, 3, 5, 6), (1, 0): (2, 3, 6, 5), (0, 1): (5, 2, 3, 6), (1, 1): (6, 2, 3, 5)}
for rows in 0, 1:
    for a, b in (1, 0), (0, 1), (1, 1):
        inputs = {"a": f(*left[rows, a]), "b": f(*right[rows, b])}
        flags = {"transA": rows, "transB": rows, "transBatchA": a, "transBatchB": b}
        single(f"fmm_batch_{rows}{a}{b}", "FusedMatMul", inputs, **flags)
single(
    "gemm_fast_gelu",
    "GemmFastGelu",
    {"x": f(2, 3, 4)},
    constants={"w": f(4, 5), "b": f(5)},
    reference=[onnx_node("MatMul", "x,w", "p"), node("FastGelu", "p,b")],
)
single(
    "bias_dropout",
    "BiasDropout",
    {"x": f(2, 3, 4)},
    "y",
    constants={"b": f(4), "r": f(2, 3, 4), "ratio": np.float32(0.5)},
    reference=[onnx_node("Add", "x,b", "sum"), onnx_node("Add", "sum,r")],
)

group = {"g": f(8), "b": f(8)}
NHWC, NCHW = {"perm": [0, 2, 3, 1]}, {"perm": [0, 3, 1, 2]}


def norm(x, y):
    return [
        onnx_node("Transpose", x, "n0", **NCHW),
        onnx_node("GroupNormalization", "n0,g,b", "n1", num_groups=2, epsilon=1e-5),
        onnx_node("Transpose", "n1", y, **NHWC),
    ]


silu = [onnx_node("Sigmoid", "n2", "n3"), onnx_node("Mul", "n2,n3", "y")]
single(
    "group_norm",
    "GroupNorm",
    {"x": f(2, 3, 5, 8)},
    constants=group,
    groups=2,
    activation=1,
    reference=[*norm("x", "n2"), *silu],
)
single(
    "group_norm_first",
    "GroupNorm",
    {"x": f(2, 8, 5, 3)},
    constants=group,
    groups=4,
    activation=0,
    channels_last=0,
    epsilon=0.01,
    reference=[onnx_node("GroupNormalization", "x,g,b", num_groups=4, epsilon=0.01)],
)


def skip_norm(name, skip, bias):
    constants = {**group}
    names, sums = "x,g,b,skip", [
        (
            onnx_node("Unsqueeze", "skip,axes", "wide")
            if len(skip) == 2
            else onnx_node("Identity", "skip", "wide")
        )
    ]
    constants["axes"] = i64(1, 2)
    sums.append(onnx_node("Add", "x,wide", "half" if bias else "sum0"))
    if bias:
        constants["shift"] = f(8)
        names += ",shift"
        sums.append(onnx_node("Add", "half,shift", "sum0"))
    sums.append(onnx_node("Identity", "sum0", "sum"))
    made = node("SkipGroupNorm", names, "y,sum", groups=2, activation=1)
    if len(skip) != 2:
        del constants["axes"]
    case(
        name,
        [made],
        {"x": f(2, 3, 5, 8), "skip": f(*skip)},
        constants,
        None,
        [*sums, *norm("sum0", "n2"), *silu],
    )


skip_norm("skip_group_norm", (2, 3, 5, 8), True)
skip_norm("skip_group_norm_2d", (2, 8), False)
single(
    "nhwc_conv",
    "NhwcConv",
    {"x": f(2, 5, 6, 4)},
    constants={"w": f(6, 3, 3, 2), "b": f(6)},
    group=2,
    pads=[1, 1, 1, 1],
    strides=[2, 1],
    reference=[
        onnx_node("Transpose", "x", "n0", **NCHW),
        onnx_node("Transpose", "w", "w0", **NCHW),
        onnx_node("Conv", "n0,w0,b", "n1", group=2, pads=[1, 1, 1, 1], strides=[2, 1]),
        onnx_node("Transpose", "n1", **NHWC),
    ],
)

case(
    "nhwc_fused_conv",
    [node("NhwcFusedConv", "x,w,b,z", activation="Relu")],
    {"x": f(2, 5, 6, 4), "z": f(2, 3, 4, 6)},
    {"w": f(6, 4, 3, 3), "b": f(6)},
    None,
    [
        onnx_node("Transpose", "x", "n0", **NCHW),
        onnx_node("Conv", "n0,w,b", "n1"),
        onnx_node("Transpose", "n1", "n2", **NHWC),
        onnx_node("Add", "n2,z", "n3"),
        onnx_node("Relu", "n3"),
    ],
)


# Quantised operators.
def scale(low=0.01, high=0.05):
    return np.float32(rng.uniform(low, high))


single(
    "q_where",
    "QLinearWhere",
    {"c": rng.integers(0, 2, (3, 1)).astype(bool), "x": q(np.uint8, 3, 4)},
    types={"y": U8},
    constants={
        "xs": scale(),
        "xz": np.uint8(120),
        "o": q(np.uint8, 4),
        "os": scale(),
        "oz": np.uint8(9),
        "ys": scale(),
        "yz": np.uint8(130),
    },
)
conv_constants = lambda groups: {
    "xs": scale(),
    "xz": np.uint8(110),
    "w": q(np.int8, 6, 4 // groups, 3, 3),
    "ws": np.abs(f(6)) / 100 + np.float32(0.01),
    "wz": np.zeros(6, np.int8),
    "ys": np.float32(0.9),
    "yz": np.uint8(125),
    "b": rng.integers(-500, 500, 6).astype(np.int32),
}
single(
    "q_conv",
    "QLinearConv",
    {"x": q(np.uint8, 2, 4, 5, 6)},
    types={"y": U8},
    constants=conv_constants(1),
    pads=[1, 1, 1, 1],
)
single(
    "q_conv_nhwc",
    "QLinearConv",
    {"x": q(np.uint8, 2, 5, 6, 4)},
    types={"y": U8},
    constants=conv_constants(2),
    channels_last=1,
    group=2,
    strides=[2, 1],
    pads=[1, 1, 1, 1],
)
single(
    "q_average_pool_nhwc",
    "QLinearAveragePool",
    {"x": q(np.uint8, 2, 5, 6, 4)},
    types={"y": U8},
    constants={"xs": scale(), "xz": np.uint8(110), "ys": scale(), "yz": np.uint8(125)},
    channels_last=1,
    kernel_shape=[2, 2],
    strides=[2, 2],
    ceil_mode=1,
)
case(
    "q_mean",
    [node("QLinearReduceMean", "x,xs,xz,ys,yz", axes=[1, -1], keepdims=0)],
    {"x": q(np.uint8, 2, 5, 6, 4)},
    {
        "xs": scale(),
        "xz": np.uint8(110),
        "ys": scale(0.004, 0.005),
        "yz": np.uint8(125),
        "axes": i64(1, -1),
    },
    {"y": U8},
    [
        onnx_node("DequantizeLinear", "x,xs,xz", "f"),
        onnx_node("ReduceMean", "f,axes", "m", keepdims=0),
        onnx_node("QuantizeLinear", "m,ys,yz"),
    ],
)

table = {"K": 64, "N": 6, "block_size": 16}
for kind in 0, 1:
    single(
        f"bnb4_{kind}",
        "MatMulBnb4",
        {"a": f(2, 3, 64)},
        constants={"b": q(np.uint8, 64 * 6 // 2), "absmax": np.abs(f(64 * 6 // 16))},
        quant_type=kind,
        **table,
    )


def gather(name, data, zeros=None, scales=(7, 4), **attributes):
    constants = {"data": data, "scales": f(*scales)}
    names = "data,ids,scales" + (",zeros" if zeros is not None else "")
    if zeros is not None:
        constants["zeros"] = zeros
    case(
        name,
        [node("GatherBlockQuantized", names, **attributes)],
        {"ids": rng.integers(0, 5, (2, 3))},
        constants,
    )


gather("gather_u8_4", q(np.uint8, 7, 32), gather_axis=0, quantize_axis=1, block_size=16)
gather(
    "gather_u8_4_zeros",
    q(np.uint8, 7, 32),
    q(np.uint8, 7, 2),
    gather_axis=0,
    quantize_axis=1,
    block_size=16,
)
gather("gather_u8_8", q(np.uint8, 7, 64), gather_axis=0, quantize_axis=1, block_size=16, bits=8)
gather(
    "gather_u8_8_zeros",
    q(np.uint8, 7, 64),
    q(np.uint8, 7, 4),
    gather_axis=0,
    quantize_axis=1,
    block_size=16,
    bits=8,
)
gather(
    "gather_int4",
    rng.integers(-8, 8, (7, 64)).astype(ml_dtypes.int4),
    gather_axis=0,
    quantize_axis=1,
    block_size=16,
)
gather(
    "gather_uint4",
    rng.integers(0, 16, (7, 64)).astype(ml_dtypes.uint4),
    gather_axis=0,
    quantize_axis=1,
    block_size=16,
)
gather(
    "gather_uint4_zeros",
    rng.integers(0, 16, (7, 64)).astype(ml_dtypes.uint4),
    rng.integers(0, 16, (7, 4)).astype(ml_dtypes.uint4),
    gather_axis=0,
    quantize_axis=1,
    block_size=16,
)
gather(
    "gather_int4_rows",
    rng.integers(-8, 8, (5, 32, 3)).astype(ml_dtypes.int4),
    scales=(5, 2, 3),
    gather_axis=0,
    quantize_axis=1,
    block_size=16,
)


# ONNX Runtime rounds the activations of this layer to bytes; the reference does not.
def lstm(name, columns, **attributes):
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    shape = (directions, 12) if columns else (directions,)
    constants, nodes = {}, []
    for key, rows in ("w", 4), ("r", 3):
        constants[key] = q(np.int8, directions, rows, 12)
        constants[key + "s"] = np.abs(f(*shape)) / 100 + np.float32(0.002)
        constants[key + "z"] = (q(np.int8, *shape) // 16).astype(np.int8)
    constants["b"], constants["axes"] = f(directions, 24), i64(*([1] if columns else [1, 2]))
    for key in "w", "r":
        nodes += [
            onnx_node("Cast", key, key + "0", to=FLOAT),
            onnx_node("Cast", key + "z", key + "1", to=FLOAT),
            onnx_node("Unsqueeze", key + "1,axes", key + "2"),
            onnx_node("Unsqueeze", key + "s,axes", key + "3"),
            onnx_node("Sub", f"{key}0,{key}2", key + "4"),
            onnx_node("Mul", f"{key}4,{key}3", key + "5"),
            onnx_node("Transpose", key + "5", key + "6", perm=[0, 2, 1]),
        ]
    nodes.append(onnx_node("LSTM", "x,w6,r6,b", "y,h,c", hidden_size=3, **attributes))
    made = node(
        "DynamicQuantizeLSTM", "x,w,r,b,,,,,ws,wz,rs,rz", "y,h,c", hidden_size=3, **attributes
    )
    case(name, [made], {"x": f(5, 2, 4)}, constants, None, nodes)


lstm("dynamic_lstm", False)
lstm("dynamic_lstm_both", True, direction="bidirectional")

tokens = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 0, 4]])
single("ngram_repeat", "NGramRepeatBlock", {"ids": tokens, "scores": f(2, 6)}, ngram_size=2)
single("expand_dims", "ExpandDims", {"x": f(2, 3)}, constants={"axis": np.int32(-1)})
single("trilu_ms", "Trilu", {"x": f(2, 4, 5)}, constants={"k": np.int64(1)}, upper=0)
single("gather_nd_ms", "GatherND", {"x": f(3, 4, 2), "i": np.array([[0, 1], [2, 3]])})
single(
    "grid_sample_ms",
    "GridSample",
    {"x": f(1, 2, 4, 5), "grid": f(1, 3, 3, 2) / 2},
    mode="bicubic",
    padding_mode="border",
    align_corners=1,
)
single("pad_ms", "Pad", {"x": f(2, 3)}, constants={"pads": i64(1, 0, 0, -1), "v": f32(0.5)})

if __name__ == "__main__":
    root = (
        pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "fused"
    )
    for one in cases:
        if not (root / one[0]).exists():
            write(root, *one)
