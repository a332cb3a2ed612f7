"""Sessions: what they say of a model, what a run takes and answers, and what they refuse."""

import importlib.metadata
import json
import subprocess

import legacy_gpu
import numpy as np
import onnx_model as om
import pytest
from legacy_gpu import DeviceError, InputError, ModelError, Session, UsageError, Value


def test_the_package_is_the_installed_one():
    assert "site-packages" in legacy_gpu.__file__
    assert legacy_gpu.__version__ == importlib.metadata.version("legacy_gpu")


def test_devices_are_those_of_the_command(binary):
    told = subprocess.run([binary, "devices", "--json"], capture_output=True, timeout=120, check=True)
    keys = ["id", "name", "backend", "memory_bytes", "usable", "reason", "hint"]
    expected = [{key: one.get(key) for key in keys} for one in json.loads(told.stdout)["devices"]]
    assert [vars(device) for device in legacy_gpu.devices()] == expected
    assert expected[0]["id"] == "cpu"


@pytest.fixture(scope="module")
def session(digits):
    return Session(digits, device="cpu", threads=1)


def test_a_model_says_what_it_takes(session, digits):
    assert session.inputs == (Value("image", "float32", ("n", 1, 8, 8)),)
    assert session.outputs == (Value("logits", "float32", ("n", 10)),)
    assert session.device == "cpu"
    assert repr(session) == "<legacy_gpu.Session of image on cpu>"
    for source in (str(digits), digits.read_bytes(), bytearray(digits.read_bytes())):
        assert Session(source, device="cpu", threads=1).inputs == session.inputs
    open_ones = Session(om.identity(om.FLOAT, (None, "rows", 3)), device="cpu")
    assert open_ones.inputs[0].shape == (None, "rows", 3)
    unranked = Session(om.identity(om.FLOAT, None), device="cpu")
    assert unranked.inputs[0].shape is None


def test_a_run_answers_what_the_command_does(session, digits, binary, tmp_path):
    image = np.random.default_rng(1).integers(0, 17, (3, 1, 8, 8)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    command = [binary, "run", digits, "--input", tmp_path / "image.npy", "--output-dir", tmp_path]
    subprocess.run([*command, "--device", "cpu", "--threads", "1"], check=True, timeout=120, capture_output=True)
    for given in (image, {"image": image}, image[::-1][::-1]):
        logits = session.run(given)["logits"]
        assert logits.dtype == np.float32
        np.testing.assert_array_equal(logits, np.load(tmp_path / "logits.npy"))
    strided = np.zeros((3, 1, 8, 16), np.float32)[..., ::2]
    strided[:] = image
    np.testing.assert_array_equal(session.run(strided)["logits"], logits)


@pytest.mark.parametrize("name", [name for name in om.TYPES if name != "object"])
def test_each_dtype_goes_through(name):
    session = Session(om.identity(om.TYPES[name], ("a", "b")), device="cpu", threads=1)
    assert session.inputs[0].dtype == name
    given = (np.arange(6).reshape(2, 3) % 2 if name == "bool" else np.arange(6).reshape(2, 3)).astype(name)
    for array in (given, given[:, ::-1], given[:0], np.asfortranarray(given)):
        answer = session.run(array)["y"]
        assert answer.dtype == array.dtype
        np.testing.assert_array_equal(answer, array)


def test_shapes_without_lengths_and_bytes_at_odd_places():
    session = Session(om.identity(om.FLOAT, ()), device="cpu")
    assert session.run(np.float32(2.5))["y"] == np.float32(2.5)
    assert session.run(np.array(2.5, np.float32))["y"].shape == ()
    session = Session(om.identity(om.FLOAT), device="cpu")
    odd = np.zeros(13, np.uint8)[1:].view(np.float32)
    assert not odd.flags.aligned
    odd[:] = [1, 2, 3]
    np.testing.assert_array_equal(session.run(odd)["y"], [1, 2, 3])


def test_texts():
    session = Session(om.identity(om.STRING, ("a", "b")), device="cpu")
    assert session.inputs[0].dtype == "str"
    texts = [["", "ü"], ["a\nb", "longer than the others"]]
    for given in (np.array(texts, dtype=object), np.array(texts)):
        answer = session.run(given)["y"]
        assert answer.dtype == object and answer.tolist() == texts
    assert session.run(np.empty((0, 2), dtype=object))["y"].shape == (0, 2)
    for wrong, code in ((np.array([[b"a"]], dtype=object), "input_dtype"), (np.array([["\udc80"]]), "input_invalid")):
        with pytest.raises(InputError) as refused:
            session.run(wrong)
        assert refused.value.code == code


def test_bfloat16_comes_wider():
    nodes = [om.node("Cast", ["x"], ["y"], om.attribute("to", i=om.BFLOAT16))]
    types = [om.tensor_type(one, ("n",)) for one in (om.FLOAT, om.BFLOAT16)]
    session = Session(om.model(nodes, [("x", types[0])], [("y", types[1])]), device="cpu")
    assert session.outputs[0].dtype == "bfloat16"
    answer = session.run(np.array([1.0, -2.5, np.inf], np.float32))["y"]
    assert answer.dtype == np.float32 and answer.tolist() == [1.0, -2.5, np.inf]
    narrow = Session(om.identity(om.BFLOAT16), device="cpu")
    with pytest.raises(InputError, match="is float32, expected bfloat16\nhint: .* ml_dtypes"):
        narrow.run(np.zeros(1, np.float32))


def test_sequences_are_lists_and_maps_are_dictionaries():
    tensor, many = om.tensor_type(om.FLOAT, ("n",)), om.sequence_type(om.tensor_type(om.FLOAT, (None,)))
    other = om.tensor_type(om.FLOAT, ("m",))
    made = om.model([om.node("SequenceConstruct", ["a", "b"], ["s"])], [("a", tensor), ("b", other)], [("s", many)])
    session = Session(made, device="cpu")
    assert session.outputs[0].kind == "a sequence"
    one, two = np.ones(1, np.float32), np.full(2, 2, np.float32)
    answer = session.run({"a": one, "b": two})["s"]
    assert [item.tolist() for item in answer] == [[1], [2, 2]]
    taken = om.model([om.node("SequenceAt", ["s", "i"], ["y"])],
                     [("s", many), ("i", om.tensor_type(om.INT64, ()))], [("y", tensor)])
    session = Session(taken, device="cpu")
    assert session.run({"s": answer, "i": np.int64(1)})["y"].tolist() == [2, 2]

    maps = om.sequence_type(om.map_type(om.STRING, om.tensor_type(om.FLOAT, ())))
    zipped = om.node("ZipMap", ["x"], ["y"], om.attribute("classlabels_strings", strings=["cat", "dog"]),
                     domain="ai.onnx.ml")
    table = om.model([zipped], [("x", om.tensor_type(om.FLOAT, ("n", 2)))], [("y", maps)], domains=["ai.onnx.ml"])
    answer = Session(table, device="cpu").run(np.array([[0.25, 0.75]], np.float32))["y"]
    assert answer == [{"cat": 0.25, "dog": 0.75}]


def test_wrong_inputs_are_refused_in_words(session):
    good = np.zeros((1, 1, 8, 8), np.float32)
    for given, code, part in [
        (good.astype(np.float64), "input_dtype", "input 'image' is float64, expected float32"),
        (good.astype(">f4"), "input_dtype", "input 'image' is >f4, expected float32"),
        ({"picture": good}, "input_name", "picture"),
        ({}, "input_name", "image"),
        ({"image": good, "more": good}, "input_name", "more"),
        ({"image": good[0]}, "input_shape", "rank is 3, expected 4"),
        ({"image": good[..., :7]}, "input_shape", "dimension 3 is 7, expected 8"),
        ([1.0, 2.0], "input_invalid", "input 'image' is of the type list, expected an array"),
        (None, "input_invalid", "NoneType"),
    ]:
        with pytest.raises(InputError) as refused:
            session.run(given)
        assert (refused.value.code, part in str(refused.value)) == (code, True), str(refused.value)
    with pytest.raises(InputError, match=r'give image.astype\("float32"\)'):
        session.run(good.astype(np.int32))
    two = om.model([om.node("Add", ["a", "b"], ["y"])],
                   [(name, om.tensor_type(om.FLOAT, ("n",))) for name in "ab"],
                   [("y", om.tensor_type(om.FLOAT, ("n",)))])
    with pytest.raises(InputError, match="the model has 2 inputs") as refused:
        Session(two, device="cpu").run(good)
    assert refused.value.hint == 'give {"a": ..., "b": ...}'
    with pytest.raises(TypeError, match="the name 3 of an input is of the type int, expected str"):
        session.run({3: good})


def test_wrong_models_and_arguments_are_refused_in_words(digits, tmp_path):
    for kind, code, arguments in [
        (ModelError, "file_not_found", {"model": tmp_path / "none.onnx"}),
        (ModelError, "model_unsupported", {"model": om.identity(om.FLOAT, op="NoSuchOp")}),
        (DeviceError, "device_unknown", {"device": "gpu"}),
        (UsageError, "usage", {"device": "cpu,cpu"}),
        (UsageError, "usage", {"precision": "f16"}),
        (UsageError, "usage", {"threads": 0}),
        (UsageError, "usage", {"threads": -1}),
        (UsageError, "usage", {"threads": 1 << 70}),
        (UsageError, "usage", {"vram": -1}),
        (UsageError, "usage", {"vram": "much"}),
        (UsageError, "usage", {"vram": "1GiB"}),
        (UsageError, "usage", {"vram": 12}),
    ]:
        with pytest.raises(kind) as refused:
            Session(**{"model": digits, "device": "cpu", **arguments})
        assert refused.value.code == code and refused.value.message
        assert isinstance(refused.value, legacy_gpu.Error)
    # What the extension cannot even hold is told with the same limits as what it refuses.
    for name, wrong, limits in [
        ("threads", (-1, 0, 1025, 1 << 70), r"expected 1 to 1024\b"),
        ("vram", (-1, 0, 1023, 1 << 70), r"expected 1024\b"),
    ]:
        for count in wrong:
            with pytest.raises(UsageError, match=rf"^{name} is {count}\b.*, {limits}"):
                Session(digits, device="cpu", **{name: count})
    for name, given in [("model", 3), ("device", 0), ("threads", "2"), ("precision", 32), ("vram", 1.5)]:
        with pytest.raises(TypeError, match=f"the argument {name} is of the type {type(given).__name__}, expected"):
            Session(**{"model": digits, name: given})
    assert Session(digits, device="cpu", threads=np.int64(1)).device == "cpu"


def test_damaged_models_are_errors_and_no_crashes(digits):
    whole = digits.read_bytes()
    random = np.random.default_rng(3)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole[: random.integers(1, len(whole))] if random.random() < 0.3 else whole)
        for at in random.integers(0, len(damaged), 8):
            damaged[at] = random.integers(0, 256)
        try:
            Session(damaged, device="cpu", threads=1).run(np.zeros((1, 1, 8, 8), np.float32))
        except legacy_gpu.Error as error:
            assert error.code != "internal", error
            refused += 1
    assert refused > 10


def test_precisions_are_those_of_the_command(digits):
    image = np.ones((1, 1, 8, 8), np.float32)
    exact = Session(digits, device="cpu").run(image)["logits"]
    for precision in ("fast", "int8"):
        close = Session(digits, device="cpu", precision=precision).run(image)["logits"]
        assert np.abs(close - exact).max() < 0.5
