"""Serves an ONNX file by Ray Serve until it is killed: ray_app.py MODEL PORT."""

import sys
import time

import oip
import ray
from ray import serve
from starlette.responses import Response


@serve.deployment(num_replicas=1, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})
class Onnx:
    def __init__(self, path):
        self.model = oip.Model(path)

    async def __call__(self, request):
        json_bytes = request.headers.get(oip.JSON_BYTES)
        if json_bytes is None:
            return self.model.infer((await request.json())["inputs"])
        body, json_bytes = self.model.infer_binary(await request.body(), int(json_bytes))
        return Response(body, headers={oip.JSON_BYTES: str(json_bytes)})


ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(Onnx.bind(sys.argv[1]))
while True:
    time.sleep(3600)
