"""Speaks to a running server as KServe's own client does.

    python kserve_e2e.py http://127.0.0.1:8000

Needs `kserve` 0.21. The server must have the bundled model `digits` loaded. Prints a line a check and exits 1 at the
first that fails. It is a program of its own: KServe's messages of gRPC and Triton's have the same names, and one
process cannot have both.
"""

import asyncio
import json
import sys
import urllib.request

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

MODEL = "digits"
IMAGES = np.random.default_rng(7).integers(0, 17, size=(3, 1, 8, 8)).astype(np.float32)


def plain(url):
    """The answer to a request that no client has written."""
    tensor = {"name": "image", "shape": IMAGES.shape, "datatype": "FP32", "data": IMAGES.ravel().tolist()}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(f"{url}/v2/models/{MODEL}/infer", body) as answer:
        output = json.load(answer)["outputs"][0]
    return np.array(output["data"], np.float32).reshape(output["shape"])


async def check_health(rest, url):
    assert await rest.is_server_live(url)
    assert await rest.is_server_ready(url)
    assert await rest.is_model_ready(url, MODEL)


async def check_infer(rest, url):
    expected = plain(url)
    for binary in (False, True):
        tensor = InferInput("image", list(IMAGES.shape), "FP32")
        tensor.set_data_from_numpy(IMAGES, binary_data=binary)
        request = InferRequest(model_name=MODEL, infer_inputs=[tensor])
        answer = await rest.infer(url, request, model_name=MODEL)
        assert (answer.model_name, answer.outputs[0].name) == (MODEL, "logits"), answer
        np.testing.assert_array_equal(answer.outputs[0].as_numpy(), expected)


async def check_refusal(rest, url):
    tensor = InferInput("pixels", list(IMAGES.shape), "FP32")
    tensor.set_data_from_numpy(IMAGES, binary_data=False)
    request = InferRequest(model_name=MODEL, infer_inputs=[tensor])
    try:
        await rest.infer(url, request, model_name=MODEL)
    except Exception as error:
        assert "400" in str(error), error
    else:
        raise AssertionError("was answered, expected 400")


async def main(url):
    rest = InferenceRESTClient(RESTConfig(protocol="v2"))
    for check in (check_health, check_infer, check_refusal):
        await check(rest, url)
        print("ok", check.__name__.removeprefix("check_"))
    await rest.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1].rstrip("/")))
