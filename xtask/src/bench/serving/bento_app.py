"""An ONNX file as a service of BentoML; the variable MODEL names the file."""

import os

import bentoml
import oip


@bentoml.service(traffic={"timeout": 60})
class Onnx:
    def __init__(self) -> None:
        self.model = oip.Model(os.environ["MODEL"])

    @bentoml.api
    def infer(self, inputs: list[dict]) -> dict:
        return self.model.infer(inputs)
