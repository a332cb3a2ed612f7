"""Asks a running cluster, with nothing but Python's standard library.

    python3 examples/client.py examples/paper/7.png --model read-digit
    python3 examples/client.py --url http://127.0.0.1:8000

With pictures it has an ensemble read them; without, it sends numbers to the bundled model. The key,
where one is needed, is taken from the variable RADEON_KEY.
"""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
import uuid


class Refused(Exception):
    """What the server answered instead: its status and its words."""

    def __init__(self, status, words):
        super().__init__(f"{status}: {words}")
        self.status = status


class Cluster:
    """The Open Inference Protocol of one server."""

    def __init__(self, url, key=None, timeout_s=30):
        self.url = url.rstrip("/")
        self.key = key
        self.timeout_s = timeout_s

    def ask(self, path, body=None, content_type="application/json"):
        """The JSON that `path` answers; `body` makes it a POST. May raise Refused."""
        request = urllib.request.Request(self.url + path, body)
        if body is not None:
            request.add_header("Content-Type", content_type)
        if self.key:
            request.add_header("Authorization", "Bearer " + self.key)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode(errors="replace")) from None

    def infer(self, model, name, shape, numbers):
        """Sends f32 numbers as the input `name`; gives the outputs by name."""
        tensor = {"name": name, "shape": shape, "datatype": "FP32", "data": numbers}
        answer = self.ask(f"/v2/models/{model}/infer", json.dumps({"inputs": [tensor]}).encode())
        return {output["name"]: output["data"] for output in answer["outputs"]}

    def picture(self, model, path):
        """Sends a picture file to an ensemble with the input `image`; gives the outputs by name."""
        with open(path, "rb") as file:
            return self.picture_bytes(model, file.read())

    def picture_bytes(self, model, data):
        """The same with what the file holds."""
        # A form: the picture goes as it is, which JSON could not carry.
        mark = uuid.uuid4().hex.encode()
        head = b'--%s\r\nContent-Disposition: form-data; name="image"; filename="image"\r\n\r\n' % mark
        body = head + data + b"\r\n--%s--\r\n" % mark
        kind = "multipart/form-data; boundary=" + mark.decode()
        answer = self.ask(f"/v2/models/{model}/infer", body, kind)
        return {output["name"]: output["data"] for output in answer["outputs"]}


def main():
    parser = argparse.ArgumentParser(description="Asks a running cluster.")
    parser.add_argument("pictures", nargs="*", help="pictures for an ensemble")
    parser.add_argument("--model", default="read-digit", help="the ensemble [default: read-digit]")
    parser.add_argument("--url", default=os.environ.get("RADEON_URL", "http://127.0.0.1:8000"))
    args = parser.parse_args()
    cluster = Cluster(args.url, os.environ.get("RADEON_KEY"))
    for path in args.pictures:
        print(path, json.dumps(cluster.picture(args.model, path)))
    if not args.pictures:
        scores = cluster.infer("digits", "image", [1, 1, 8, 8], [0.0] * 64)["logits"]
        print("an empty picture is read as", scores.index(max(scores)))


if __name__ == "__main__":
    try:
        main()
    except (OSError, Refused) as error:
        sys.exit(f"error: {error}")
