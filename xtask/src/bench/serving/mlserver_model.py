"""A model of MLServer that runs an ONNX file by ONNX Runtime; its settings name the file."""

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):
    async def load(self) -> bool:
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feeds = {i.name: NumpyCodec.decode_input(i).astype("float32") for i in payload.inputs}
        values = self.session.run(None, feeds)
        names = [output.name for output in self.session.get_outputs()]
        outputs = [NumpyCodec.encode_output(name, value) for name, value in zip(names, values)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
