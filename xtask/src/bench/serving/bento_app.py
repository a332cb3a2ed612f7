"""An ONNX file as a service of BentoML; the variable MODEL names the file.

`/infer` takes JSON. `/raw/infer` takes binary tensors, which its own inputs have no form for, in an
application of ASGI within the service.
"""

import functools
import os

import bentoml
import oip
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route


@functools.cache
def model():
    return oip.Model(os.environ["MODEL"])


async def raw(request):
    json_bytes = int(request.headers[oip.JSON_BYTES])
    body, json_bytes = model().infer_binary(await request.body(), json_bytes)
    return Response(body, headers={oip.JSON_BYTES: str(json_bytes)})


app = Starlette(routes=[Route("/infer", raw, methods=["POST"])])


@bentoml.service(traffic={"timeout": 60})
@bentoml.asgi_app(app, path="/raw")
class Onnx:
    def __init__(self) -> None:
        model()

    @bentoml.api
    def infer(self, inputs: list[dict]) -> dict:
        return model().infer(inputs)
