"""The static program in a root with nothing else, and what stages of the Containerfile come to, started and asked.

    python images.py REPOSITORY STATIC DYNAMIC WORK

STATIC and DYNAMIC are the two programs of a release. Prints a line a check. Before that, and without root: all that
Cargo asks for is copied where the Containerfile builds.
"""

import json
import os
import signal
import ssl
import sys
import tomllib
import urllib.request
from pathlib import Path

from containers import Root, Stage, end, eventually, need, report

ANY = "127.0.0.1:0"
IMAGE = {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.0] * 64}
# A white image, as numpy writes it.
HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }"
NPY = b"\x93NUMPY\x01\x00v\x00" + HEADER.ljust(117).encode() + b"\n" + bytes(256)
# Where the stages copy from, and what lies there: the programs are built already, and symbols are not needed.
BUILT = "/src/target/release/radeon-cluster"
BUILT_STATIC = "/src/target/x86_64-unknown-linux-musl/release/radeon-cluster"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def members(repository):
    """The folders of the workspace's members, from its root; what a pattern finds without a crate is none."""
    workspace = tomllib.loads((repository / "Cargo.toml").read_text())["workspace"]
    out = [Path(path) for path in workspace.get("exclude", [])]
    found = set()
    for pattern in workspace["members"]:
        folders = [path.relative_to(repository) for path in repository.glob(pattern) if (path / "Cargo.toml").exists()]
        assert folders, f"no crate is at {pattern}, which Cargo.toml names as a member"
        found.update(path for path in folders if not any(path.is_relative_to(other) for other in out))
    return sorted(found)


def missing(repository, text):
    """What Cargo asks for in every build and no COPY of the stage `source` brings to where it lies here."""
    copied = [Path(source) for source, target, _ in Stage(text, "source").copies if brings(source, target)]
    asked = [*members(repository), Path("Cargo.toml"), Path("Cargo.lock")]
    return [str(path) for path in asked if not any(path.is_relative_to(source) for source in copied)]


def brings(source, target):
    """Whether a COPY keeps the path: a folder by its name, and a file into the folder that it is in."""
    return Path(target) == Path(source) or (target.endswith("/") and Path(target) == Path(source).parent)


def copies(repository, text):
    """Each member is copied; and one that is not would be found, in a folder of its own or within another."""
    lost = missing(repository, text)
    assert not lost, f"no COPY of the stage source brings {', '.join(lost)}: add one to the Containerfile"
    for line, expected in [("COPY apps apps\n", "apps/cli"), ("COPY hal hal\n", "hal/conformance")]:
        assert line in text, f"the Containerfile has no {line!r}, without which this was to be tried"
        less = text.replace(line, "")
        assert expected in missing(repository, less), f"nothing tells that {expected} is not copied"
        elsewhere = text.replace(line, line.replace("\n", "/more\n"))
        assert expected in missing(repository, elsewhere), f"nothing tells that {expected} is copied elsewhere"


def ask(url, body=None, key=None):
    """What a server answers; of its certificate nothing is asked here."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        text = answer.read()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()


def sources(root, static, dynamic, work):
    """Where the stages' files are on this machine."""
    image = work / "image"
    for folder in ("data", "tmp"):
        (image / folder).mkdir(parents=True, exist_ok=True)
    (image / "data").chmod(0o700)
    certificates = work / "certificates"
    certificates.write_text("")
    host = Path(CERTIFICATES)
    found = host if host.exists() else certificates
    return {BUILT: dynamic, BUILT_STATIC: static, CERTIFICATES: found, "/image/": image}


def empty(static, folder):
    """A root with the program and the names of two hosts."""
    folder.mkdir(parents=True)
    for name in ("proc", "dev", "tmp", "etc", "data"):
        (folder / name).mkdir()
    (folder / "radeon-cluster").write_bytes(Path(static).read_bytes())
    (folder / "radeon-cluster").chmod(0o755)
    (folder / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.0.1 coordinator.example\n")
    (folder / "image.npy").write_bytes(NPY)
    return Root(folder, {"HOME": "/data", "RADEON_DATA": "/data/cluster"}, "0:0", ["/radeon-cluster"])


def demo(root):
    shown = root.run("demo", "--json")
    assert shown["lost"] == 0 and shown["correct"] > 340, shown


def cluster(root, log):
    """A coordinator with TLS, asked by the name localhost, and a worker that comes by a name of /etc/hosts."""
    start = ["start", "--json", "--workers", "1", "--tls", "self-signed"]
    made = root.run(*start, "--http", ANY, "--grpc", ANY, "--quic", ANY)
    try:
        task = root.run("submit", "--json", "--model", "digits", "--input", "/image.npy", "--wait")
        assert task["state"] == "succeeded", task
        port = made["http"].rsplit(":", 1)[1]
        server = ["--server", f"https://localhost:{port}", "--fingerprint", made["fingerprint"]]
        root.run("status", "--json", *server, "--key-file", "/data/cluster/local.key")
        token = root.run("token", "create", "--json")["token"]
        quic = made["quic"].rsplit(":", 1)[1]
        join = ["join", f"coordinator.example:{quic}", token, "--name", "second", "--data", "/data/second"]
        worker = root.spawn(*join, log=log)
        try:
            eventually("a worker joins by a name", lambda: "second" in json.dumps(root.run("workers", "--json")))
        finally:
            assert end(worker) == 0, "the worker leaves"
    finally:
        root.run("stop", "--json")


ADDRESSES = {"RADEON_HTTP__ADDR": ANY, "RADEON_GRPC__ADDR": ANY, "RADEON_QUIC__ADDR": ANY}
# What the manifests for Kubernetes say to an image that says nothing itself.
PLACES = {"RADEON_DATA": "/data/cluster", "HOME": "/data"}


def started(root, volume, log, **env):
    """A coordinator in an image: its process, URL and key, once it is ready."""
    mounts = [(volume, "/data")] if volume else []
    env = ADDRESSES | (PLACES if volume else {}) | env
    process = root.spawn("start", "--foreground", log=log, env=env, mounts=mounts)
    try:
        data = (volume or root.path / "data") / "cluster"
        url = eventually("it is ready", lambda: json.loads((data / "coordinator.json").read_text()))["http"]
        eventually("it is in health", lambda: ask(f"{url}/healthz")[0] == 200)
        return process, url, (data / "local.key").read_text().strip()
    except Exception:
        end(process, signal.SIGKILL)
        raise


def serves(root, path, volume=None):
    """Health and an inference over HTTP, and SIGTERM while tasks are queued: they are done before it ends."""
    count = 50
    tasks = {"tasks": [{"model": "digits", "inputs": [IMAGE], "durable": True}] * count}
    with open(path, "wb") as log:
        process, url, key = started(root, volume, log)
        try:
            answer = ask(f"{url}/v2/models/digits/infer", {"inputs": [IMAGE]})[1]
            assert answer["outputs"][0]["shape"] == [1, 10], answer
            assert ask(f"{url}/api/v1/cluster/tasks/batch", tasks, key)[0] == 202
        finally:
            code = end(process)
        assert code == 0, f"SIGTERM ended it with {code}"
        # Without a worker nothing is done that was not done before.
        process, url, key = started(root, volume, log, RADEON_WORKERS="0")
        try:
            states = [task["state"] for task in ask(f"{url}/api/v1/cluster/tasks", None, key)[1]]
        finally:
            code = end(process)
        assert code == 0 and states == ["succeeded"] * count, f"{code} {states}"


def main(repository, static, dynamic, work):
    repository = Path(repository)
    text = (repository / "deploy/container/Containerfile").read_text()
    good = report("every member of the workspace is copied to where it is built", lambda: copies(repository, text))
    if reason := need():
        print(f"skipped: {reason}")
        return good
    work = Path(work)
    here = sources(repository, static, dynamic, work)
    bare = empty(static, work / "empty")
    cpu = Stage(text, "cpu")
    good &= report("the cpu image is made of nothing", lambda: check(cpu.base == "scratch", cpu.base))
    cpu = cpu.build(work / "cpu", here)
    mesa = Stage(text, "mesa").build(work / "mesa", here)
    mesa.libraries(dynamic)
    volume = work / "volume"
    volume.mkdir()
    os.chown(volume, *map(int, mesa.user.split(":")))
    with open(work / "empty.log", "wb") as log:
        good &= report("the demo in an empty root", lambda: demo(bare))
        good &= report("a cluster in an empty root, by names and TLS", lambda: cluster(bare, log))
    good &= report("the cpu image serves and drains", lambda: serves(cpu, work / "cpu.log"))
    good &= report("the mesa image's program serves and drains", lambda: serves(mesa, work / "mesa.log", volume))
    return good


def check(holds, said):
    assert holds, said


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
