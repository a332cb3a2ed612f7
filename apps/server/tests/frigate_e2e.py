"""Speaks to a running server as Frigate's detector `zmq` does, with the library that it uses.

    python frigate_e2e.py tcp://127.0.0.1:5555

Needs `numpy`, `onnx` and `pyzmq`. Prints a line a check and exits 1 at the first that fails.
"""

import json
import sys

import numpy as np
import onnx
import zmq
from onnx import TensorProto, helper, numpy_helper

SIDE = 64
# Centre, size and the scores of two classes: two boxes on one thing, one far away, one nowhere.
BOXES = [
    [32.0, 16.0, 16.0, 8.0, 0.2, 1.0],
    [33.0, 16.0, 16.0, 8.0, 0.8, 0.1],
    [8.0, 48.0, 8.0, 8.0, 0.9, 0.3],
    [60.0, 60.0, 4.0, 4.0, 0.3, 0.3],
    [60.0, 60.0, 4.0, 4.0, 0.1, 0.1],
    [60.0, 60.0, 4.0, 4.0, 0.1, 0.1],
    [60.0, 60.0, 4.0, 4.0, 0.1, 0.1],
]


def yolo():
    """A network with YOLO's output `[1, 4 + classes, boxes]`, whose scores are dimmed as the image is."""
    boxes = np.array(BOXES, np.float32).T[None]
    scale = np.ones_like(boxes)
    scale[:, 4:] = 0
    constants = {"places": boxes * scale, "scores": boxes * (1 - scale)}
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["light"], keepdims=0),
        helper.make_node("Mul", ["scores", "light"], ["lit"]),
        helper.make_node("Add", ["places", "lit"], ["output0"]),
    ]
    graph = helper.make_graph(
        nodes,
        "yolo",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 6, len(BOXES)])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return model.SerializeToString()


class Detector:
    """The detector's socket. The real one waits for 200 ms; a busy machine may take longer."""

    def __init__(self, endpoint, model_name, model, model_type="yologeneric"):
        self.endpoint, self.name, self.model, self.type = endpoint, model_name, model, model_type
        self.context = zmq.Context.instance()
        self.socket = None
        self.sent_model = False
        self.connect()

    def connect(self):
        if self.socket is not None:
            self.socket.close(linger=0)
        self.socket = self.context.socket(zmq.REQ)
        for option in (zmq.RCVTIMEO, zmq.SNDTIMEO):
            self.socket.setsockopt(option, 20_000)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(self.endpoint)

    def manage(self, header, *model):
        self.socket.send_multipart([json.dumps(header | {"model_name": self.name}).encode(), *model])
        self.socket.setsockopt(zmq.RCVTIMEO, 30_000)
        try:
            frames = self.socket.recv_multipart()
        finally:
            self.socket.setsockopt(zmq.RCVTIMEO, 20_000)
        assert len(frames) == 1, frames
        return json.loads(frames[0])

    def initialise(self):
        """Whether the model is ready, which is sent where it is not there."""
        answer = self.manage({"model_request": True})
        self.sent_model = False
        if answer.get("model_available", False):
            return answer.get("model_loaded", False)
        self.sent_model = True
        answer = self.manage({"model_data": True}, self.model)
        return answer.get("model_saved", False) and answer.get("model_loaded", False)

    def detect(self, image):
        header = {"shape": list(image.shape), "dtype": image.dtype.name, "model_type": self.type}
        self.socket.send_multipart([json.dumps(header).encode(), memoryview(image.tobytes(order="C"))])
        frames = self.socket.recv_multipart()
        if len(frames) == 1:
            return {}, np.frombuffer(frames[0], np.float32).reshape(20, 6)
        described = json.loads(frames[0])
        values = np.frombuffer(frames[1], np.dtype(described["dtype"]))
        return described, values.reshape(described["shape"])


def light(value):
    return np.full((1, 3, SIDE, SIDE), value, np.float32)


def check_model_is_sent_once(endpoint):
    first = Detector(endpoint, "yolo.onnx", yolo())
    assert first.initialise() and first.sent_model
    second = Detector(endpoint, "yolo.onnx", yolo())
    assert second.initialise() and not second.sent_model


def check_boxes(endpoint):
    detector = Detector(endpoint, "yolo.onnx", yolo())
    assert detector.initialise()
    for value, found in [
        (1.0, [[1, 1.0, 12, 24, 20, 40], [0, 0.9, 44, 4, 52, 12]]),
        (0.5, [[1, 0.5, 12, 24, 20, 40], [0, 0.45, 44, 4, 52, 12]]),
        (0.0, []),
    ]:
        described, rows = detector.detect(light(value))
        assert "error" not in described, described
        assert rows.shape == (20, 6) and rows.dtype == np.float32
        expected = np.zeros((20, 6), np.float32)
        for row, (label, score, *corners) in zip(expected, found):
            row[:] = [label, score, *(np.array(corners) / SIDE)]
        np.testing.assert_allclose(rows, expected, atol=1e-6)


def check_refusals(endpoint):
    detector = Detector(endpoint, "yolo.onnx", yolo())
    assert detector.initialise()
    for image, kind, part in [
        (light(1).astype(np.uint8), "yologeneric", "the tensor is UINT8"),
        (light(1), "ssd", "outputs have the shapes"),
        (light(1), "nanodet", "nanodet"),
    ]:
        detector.type = kind
        described, rows = detector.detect(image)
        assert part in described["error"] and not rows.any(), described
    detector.type = "yologeneric"
    assert detector.detect(light(1))[1].any()
    assert not Detector(endpoint, "../yolo.onnx", yolo()).initialise()
    assert not Detector(endpoint, "text.onnx", b"no model").initialise()


def check_a_connection_without_a_model_is_made_anew(endpoint):
    """What a detector does whose server was started anew: it gets no answer, and asks for its model again."""
    detector = Detector(endpoint, "yolo.onnx", yolo())
    try:
        detector.detect(light(1))
    except zmq.Again:
        detector.connect()
        assert detector.initialise()
        assert detector.detect(light(1))[1].any()
    else:
        raise AssertionError("an image before a model was answered")


def main(endpoint):
    for check in [
        check_model_is_sent_once,
        check_boxes,
        check_refusals,
        check_a_connection_without_a_model_is_made_anew,
    ]:
        check(endpoint)
        print("ok", check.__name__.removeprefix("check_"))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
