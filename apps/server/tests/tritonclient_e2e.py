"""Speaks to a running server as Triton's own client does.

    python tritonclient_e2e.py http://127.0.0.1:8000 127.0.0.1:8001 KEY_FILE

Needs `onnx` and `tritonclient[grpc,http]` 2.x. The server must have the bundled model `digits` loaded. Prints a line a check and exits 1 at the first that fails.
"""

import json
import queue
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import numpy as np
import onnx
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

MODEL = "digits"
KEY = {}
RNG = np.random.default_rng(7)
IMAGES = RNG.integers(0, 17, size=(3, 1, 8, 8)).astype(np.float32)


def image(data=IMAGES, binary=True, datatype="FP32", name="image"):
    tensor = triton.InferInput(name, list(data.shape), datatype)
    tensor.set_data_from_numpy(data, binary_data=binary)
    return tensor


def logits(binary=True):
    return triton.InferRequestedOutput("logits", binary_data=binary)


def refused(status, text, call):
    """`call` must fail with this status and a message that contains `text`."""
    try:
        call()
    except InferenceServerException as error:
        message = error.message() or ""
        given = error.status()
        assert given is None or given == str(status), f"status {given}, expected {status}: {message}"
        assert text in message, f"message {message!r} lacks {text!r}"
        return
    raise AssertionError(f"was answered, expected {status}")


def http(url, data=None, headers=None, method=None):
    """Status, headers and body, whatever the status."""
    request = urllib.request.Request(url, data=data, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def check_health(client, url):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready(MODEL) and client.is_model_ready(MODEL, "1")
    assert not client.is_model_ready("nope")
    assert http(f"{url}/v2/health/live")[2] == b'{"live":true}'
    assert http(f"{url}/v2/health/ready")[2] == b'{"ready":true}'


def check_metadata(client, url):
    server = client.get_server_metadata()
    assert {"name", "version", "extensions"} <= server.keys()
    assert "binary_tensor_data" in server["extensions"]
    model = client.get_model_metadata(MODEL)
    assert model["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}], model
    assert model["outputs"] == [{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}], model
    config = client.get_model_config(MODEL)
    assert config["input"][0]["data_type"] == "TYPE_FP32" and config["max_batch_size"] == 0


def check_infer(client, url):
    expected = client.infer(MODEL, [image()], outputs=[logits()]).as_numpy("logits")
    assert expected.shape == (3, 10) and np.isfinite(expected).all()
    for binary_in in (True, False):
        for binary_out in (True, False):
            answer = client.infer(MODEL, [image(binary=binary_in)], outputs=[logits(binary_out)])
            np.testing.assert_array_equal(answer.as_numpy("logits"), expected)
    answer = client.infer(MODEL, [image()], request_id="id-7", model_version="1")
    np.testing.assert_array_equal(answer.as_numpy("logits"), expected)
    assert answer.get_response()["id"] == "id-7"
    assert answer.get_response()["model_name"] == MODEL
    assert answer.get_response()["model_version"] == "1"
    answer = client.infer(MODEL, [image()], priority=1, timeout=10_000_000)
    np.testing.assert_array_equal(answer.as_numpy("logits"), expected)
    waiting = [client.async_infer(MODEL, [image()]) for _ in range(20)]
    for answer in waiting:
        np.testing.assert_array_equal(answer.get_result().as_numpy("logits"), expected)


def check_raw(client, url):
    expected = client.infer(MODEL, [image()]).as_numpy("logits")
    status, headers, body = http(
        f"{url}/v2/models/{MODEL}/infer",
        data=IMAGES.tobytes(),
        headers={"Inference-Header-Content-Length": "0", "Content-Type": "application/octet-stream"},
    )
    assert status == 200, body
    length = int(headers["Inference-Header-Content-Length"])
    output = json.loads(body[:length])["outputs"][0]
    assert output["parameters"]["binary_data_size"] == len(body) - length
    given = np.frombuffer(body[length:], np.float32).reshape(output["shape"])
    np.testing.assert_array_equal(given, expected)


def check_errors(client, url):
    infer = client.infer
    refused(404, "nope", lambda: infer("nope", [image()]))
    refused(404, "", lambda: infer("nope/..", [image()]))
    refused(404, "version", lambda: infer(MODEL, [image()], model_version="99"))
    refused(400, "FP64", lambda: infer(MODEL, [image(IMAGES.astype(np.float64), datatype="FP64")]))
    refused(400, "rank", lambda: infer(MODEL, [image(IMAGES[0])]))
    refused(400, "[3, 1, 4, 8]", lambda: infer(MODEL, [image(IMAGES[:, :, :4])]))
    refused(400, "'img'", lambda: infer(MODEL, [image(name="img")]))
    refused(400, "twice", lambda: infer(MODEL, [image(), image()]))
    unknown = triton.InferRequestedOutput("probs")
    refused(400, "'logits'", lambda: infer(MODEL, [image()], outputs=[unknown]))
    refused(501, "sequence", lambda: infer(MODEL, [image()], sequence_id=3))
    text = triton.InferInput("image", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"x"], dtype=np.object_))
    refused(400, "BYTES", lambda: infer(MODEL, [text]))
    path = f"{url}/v2/models/{MODEL}/infer"
    for length in ("-1", "9999", "x"):
        status, _, body = http(path, b"{}", {"Inference-Header-Content-Length": length})
        assert status == 400 and "Inference-Header-Content-Length" in json.loads(body)["error"]
    assert http(path, b"{")[0] == 400
    assert http(path)[0] == 405
    assert http(path, b"{}", {"Origin": "http://evil.example"})[0] == 403
    assert http(path, b"{}", {"Host": "evil.example"})[0] == 403
    assert http(f"{url}/v2/nowhere")[0] == 404


def check_classification(client, url, grpc):
    """The best classes of each row, as text, over both interfaces."""
    expected = client.infer(MODEL, [image()]).as_numpy("logits")
    best = np.argsort(-expected, axis=1)[:, :3]
    asked = {
        "binary": (client, image(), triton.InferRequestedOutput("logits", class_count=3)),
        "JSON": (client, image(), triton.InferRequestedOutput("logits", binary_data=False, class_count=3)),
        "gRPC": (grpc, grpc_image(), triton_grpc.InferRequestedOutput("logits", class_count=3)),
    }
    for name, (speaker, tensor, output) in asked.items():
        texts = speaker.infer(MODEL, [tensor], outputs=[output]).as_numpy("logits")
        assert texts.shape == (3, 3), (name, texts)
        for row in range(3):
            for place in range(3):
                text = texts[row][place]
                score, index, label = (text if isinstance(text, str) else text.decode()).split(":")
                assert int(index) == best[row][place], (name, texts, best)
                # The digits' names are their digits.
                assert label == index, (name, texts)
                np.testing.assert_allclose(float(score), expected[row][int(index)], rtol=1e-6)


def check_repository(client, url):
    index = client.get_model_repository_index()
    assert {"name": MODEL, "version": "1", "state": "READY", "reason": ""} in index, index
    refused(401, "key", lambda: client.unload_model(MODEL))
    client.unload_model(MODEL, headers=KEY)
    wait_until(lambda: not client.is_model_ready(MODEL), "the model to be unloaded")
    refused(503, "not ready", lambda: client.infer(MODEL, [image()]))
    client.load_model(MODEL, headers=KEY)
    wait_until(lambda: client.is_model_ready(MODEL), "the model to be loaded")
    client.infer(MODEL, [image()])
    refused(404, "nope", lambda: client.load_model("nope", headers=KEY))


def wait_until(condition, what):
    import time

    for _ in range(100):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"waited 5 s for {what}")


def check_statistics(client, url):
    def read():
        return client.get_inference_statistics(MODEL)["model_stats"][0]

    before = read()
    client.infer(MODEL, [image()])
    after = read()
    assert after["inference_count"] == before["inference_count"] + len(IMAGES)
    assert after["execution_count"] == before["execution_count"] + 1
    assert any(batch["batch_size"] == len(IMAGES) for batch in after["batch_stats"]), after
    assert after["inference_stats"]["compute_infer"]["ns"] > before["inference_stats"]["compute_infer"]["ns"]
    every = client.get_inference_statistics()["model_stats"]
    assert MODEL in [model["name"] for model in every]


def check_metrics(client, url):
    status, headers, body = http(f"{url}/metrics", headers=KEY)
    assert status == 200 and headers["Content-Type"].startswith("text/plain")
    text = body.decode()
    assert f'nv_inference_request_success{{model="{MODEL}",version="1"}}' in text
    assert 'lgp_workers{state="ready"}' in text
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        return
    names = {family.name for family in text_string_to_metric_families(text)}
    assert "lgp_inference_overhead_seconds" in names, names


def grpc_image(data=IMAGES, datatype="FP32", name="image"):
    tensor = triton_grpc.InferInput(name, list(data.shape), datatype)
    tensor.set_data_from_numpy(data)
    return tensor


def check_grpc(client, url, grpc):
    """What the two interfaces answer is the same."""
    assert grpc.is_server_live() and grpc.is_server_ready()
    assert grpc.is_model_ready(MODEL) and grpc.is_model_ready(MODEL, "1")
    assert not grpc.is_model_ready("nope") and not grpc.is_model_ready(MODEL, "9")
    metadata = grpc.get_model_metadata(MODEL, as_json=True)
    assert metadata["inputs"][0]["name"] == "image", metadata
    assert metadata["inputs"][0]["shape"][1:] == ["1", "8", "8"], metadata
    config = grpc.get_model_config(MODEL, as_json=True)["config"]
    assert config["input"][0]["data_type"] == "TYPE_FP32", config
    index = grpc.get_model_repository_index(as_json=True)["models"]
    assert {"name": MODEL, "version": "1", "state": "READY"} in index, index
    expected = client.infer(MODEL, [image()]).as_numpy("logits")
    answer = grpc.infer(MODEL, [grpc_image()], request_id="12", priority=1, timeout=5_000_000)
    np.testing.assert_array_equal(answer.as_numpy("logits"), expected)
    assert answer.get_response().id == "12"
    asked = [triton_grpc.InferRequestedOutput("logits")]
    answer = grpc.infer(MODEL, [grpc_image()], outputs=asked, client_timeout=5.0)
    np.testing.assert_array_equal(answer.as_numpy("logits"), expected)
    stats = grpc.get_inference_statistics(MODEL, as_json=True)["model_stats"][0]
    assert int(stats["inference_stats"]["success"]["count"]) > 0, stats
    for status, text, call in [
        ("NOT_FOUND", "nope", lambda: grpc.infer("nope", [grpc_image()])),
        ("INVALID_ARGUMENT", "'pixels'", lambda: grpc.infer(MODEL, [grpc_image(name="pixels")])),
        ("INVALID_ARGUMENT", "rank 3", lambda: grpc.infer(MODEL, [grpc_image(IMAGES[0])])),
        ("UNAUTHENTICATED", "key", lambda: grpc.unload_model(MODEL)),
    ]:
        try:
            call()
        except InferenceServerException as error:
            assert status in error.status() and text in error.message(), (status, text, error)
        else:
            raise AssertionError(f"was answered, expected {status}")
    grpc.unload_model(MODEL, headers=KEY)
    wait_until(lambda: not grpc.is_model_ready(MODEL), "the model to be unloaded")
    grpc.load_model(MODEL, headers=KEY)
    wait_until(lambda: grpc.is_model_ready(MODEL), "the model to be loaded")


def words_model():
    """`loud` is each word with a `!`; `quotient` is x / 0."""
    n = ["n"]
    value = onnx.helper.make_tensor_value_info
    strings, floats = onnx.TensorProto.STRING, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("StringConcat", ["words", "mark"], ["loud"]),
            onnx.helper.make_node("Div", ["x", "zero"], ["quotient"]),
        ],
        "words",
        [value("words", strings, n), value("x", floats, n)],
        [value("loud", strings, n), value("quotient", floats, n)],
        [
            onnx.helper.make_tensor("mark", strings, [1], [b"!"]),
            onnx.helper.make_tensor("zero", floats, [1], [0.0]),
        ],
    )
    opsets = [onnx.helper.make_opsetid("", 20)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def check_strings(client, url, grpc):
    """Strings, NaN and the infinities in JSON, as binary data and over gRPC."""
    status, _, body = http(f"{url}/api/v1/cluster/models/words", words_model(), KEY)
    assert status == 201, body
    words = np.array(["ein".encode(), b"", "Größe".encode()], dtype=np.object_)
    x = np.array([1, np.nan, -1], dtype=np.float32)
    quotient = np.array([np.inf, np.nan, -np.inf], dtype=np.float32)

    def inputs(kind, **how):
        tensors = [kind.InferInput("words", [3], "BYTES"), kind.InferInput("x", [3], "FP32")]
        for tensor, data in zip(tensors, (words, x)):
            tensor.set_data_from_numpy(data, **how)
        return tensors

    assert client.get_model_config("words")["input"][0]["data_type"] == "TYPE_STRING"
    assert grpc.get_model_config("words", as_json=True)["config"]["input"][0]["data_type"] == "TYPE_STRING"
    for binary in (True, False):
        outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("loud", "quotient")]
        # This client writes NaN as JSON has no word for; only its strings are sent so.
        tensors = [inputs(triton, binary_data=binary)[0], inputs(triton)[1]]
        answer = client.infer("words", tensors, outputs=outputs)
        texts = [text if isinstance(text, str) else text.decode() for text in answer.as_numpy("loud")]
        assert texts == ["ein!", "!", "Größe!"], texts
        np.testing.assert_array_equal(answer.as_numpy("quotient"), quotient)
    answer = grpc.infer("words", inputs(triton_grpc))
    assert [text.decode() for text in answer.as_numpy("loud")] == ["ein!", "!", "Größe!"]
    np.testing.assert_array_equal(answer.as_numpy("quotient"), quotient)


def check_shared_memory(client, url, grpc):
    """Inputs and outputs in regions of system memory, over both interfaces."""
    import tritonclient.utils.shared_memory as shm

    expected = client.infer(MODEL, [image()]).as_numpy("logits")
    for kind, speaker in ((triton, client), (triton_grpc, grpc)):
        # As its own examples begin.
        speaker.unregister_system_shared_memory(headers=KEY)
        speaker.unregister_cuda_shared_memory(headers=KEY)
        sizes = {"pixels": IMAGES.nbytes, "scores": expected.nbytes}
        regions = {name: shm.create_shared_memory_region(name, f"/lgp_{name}", size) for name, size in sizes.items()}
        try:
            shm.set_shared_memory_region(regions["pixels"], [IMAGES])
            for name, size in sizes.items():
                speaker.register_system_shared_memory(name, f"/lgp_{name}", size, headers=KEY)
            assert "scores" in str(speaker.get_system_shared_memory_status(headers=KEY))
            tensor = kind.InferInput("image", list(IMAGES.shape), "FP32")
            tensor.set_shared_memory("pixels", IMAGES.nbytes)
            output = kind.InferRequestedOutput("logits")
            output.set_shared_memory("scores", expected.nbytes)
            answer = speaker.infer(MODEL, [tensor], outputs=[output], headers=KEY)
            assert answer.get_output("logits") is not None
            given = shm.get_contents_as_numpy(regions["scores"], np.float32, expected.shape)
            np.testing.assert_array_equal(given, expected)
            speaker.unregister_system_shared_memory("pixels", headers=KEY)
            assert "pixels" not in str(speaker.get_system_shared_memory_status(headers=KEY))
            speaker.unregister_system_shared_memory(headers=KEY)
        finally:
            for region in regions.values():
                shm.destroy_shared_memory_region(region)


def check_grpc_stream(client, url, grpc):
    answers = queue.Queue()
    grpc.start_stream(callback=lambda result, error: answers.put((result, error)))
    rows = [IMAGES[n % 3 : n % 3 + 1] for n in range(100)]
    for n, row in enumerate(rows):
        model = "nope" if n == 50 else MODEL
        grpc.async_stream_infer(model, [grpc_image(row)], request_id=str(n))
    expected = client.infer(MODEL, [image()]).as_numpy("logits")
    for n in range(len(rows)):
        result, error = answers.get(timeout=20)
        if n == 50:
            assert "nope" in error.message(), error
            continue
        assert error is None, error
        assert result.get_response().id == str(n)
        np.testing.assert_allclose(result.as_numpy("logits")[0], expected[n % 3], rtol=1e-4)
    grpc.stop_stream()


def adder_model():
    """`y` is the sum of a sequence so far; `s` and `t` are its state."""
    shape = ["n"]
    value = onnx.helper.make_tensor_value_info
    floats = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "s"], ["y"]), onnx.helper.make_node("Identity", ["y"], ["t"])],
        "adder",
        [value("x", floats, shape), value("s", floats, shape)],
        [value("y", floats, shape), value("t", floats, shape)],
    )
    opsets = [onnx.helper.make_opsetid("", 20)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def check_sequences(client, url, grpc):
    """Sequences over HTTP, and two of them in one stream."""
    status, _, body = http(f"{url}/api/v1/cluster/models/adder", adder_model(), KEY)
    assert status == 201, body
    wish = {"sequences": {"idle_ms": 60_000, "states": [{"input": "s", "output": "t"}]}}
    deployment = f"{url}/api/v1/cluster/models/adder/deployment"
    status, _, body = http(deployment, json.dumps(wish).encode(), KEY, "PUT")
    assert status == 200, body
    assert [tensor["name"] for tensor in client.get_model_metadata("adder")["inputs"]] == ["x"]
    config = grpc.get_model_config("adder").config
    assert config.sequence_batching.state[0].output_name == "t"

    def x(kind, value):
        tensor = kind.InferInput("x", [1], "FP32")
        tensor.set_data_from_numpy(np.array([value], np.float32))
        return [tensor]

    def infer(value, sequence, **where):
        return client.infer("adder", x(triton, value), sequence_id=sequence, **where).as_numpy("y")[0]

    for sequence in (7, "seven"):
        assert infer(1, sequence, sequence_start=True) == 1
    assert infer(2, 7) == 3 and infer(10, "seven") == 11
    assert infer(3, 7, sequence_end=True) == 6
    refused(400, "sequence_start", lambda: infer(1, 7))
    refused(400, "sequence_id", lambda: client.infer("adder", x(triton, 1)))

    answers = queue.Queue()
    grpc.start_stream(callback=lambda result, error: answers.put((result, error)))
    for n in range(100):
        grpc.async_stream_infer(
            "adder",
            x(triton_grpc, n),
            sequence_id=1 + n % 2,
            sequence_start=n < 2,
            sequence_end=n >= 98,
        )
    sums = [0, 0]
    for n in range(100):
        result, error = answers.get(timeout=20)
        assert error is None, error
        sums[n % 2] += n
        assert result.as_numpy("y")[0] == sums[n % 2], n
    grpc.stop_stream()


CHECKS = [
    check_health,
    check_metadata,
    check_infer,
    check_raw,
    check_errors,
    check_repository,
    check_statistics,
    check_metrics,
]
GRPC_CHECKS = [
    check_grpc,
    check_classification,
    check_strings,
    check_shared_memory,
    check_grpc_stream,
    check_sequences,
]


def main(url, grpc_url, key_file):
    with open(key_file, encoding="ascii") as file:
        # gRPC takes names of metadata in lower case only.
        KEY["authorization"] = f"Bearer {file.read().strip()}"
    client = triton.InferenceServerClient(urlsplit(url).netloc, concurrency=8)
    for check in CHECKS:
        check(client, url)
        print("ok", check.__name__.removeprefix("check_"))
    grpc = triton_grpc.InferenceServerClient(grpc_url)
    for check in GRPC_CHECKS:
        check(client, url, grpc)
        print("ok", check.__name__.removeprefix("check_"))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1].rstrip("/"), sys.argv[2], sys.argv[3])
