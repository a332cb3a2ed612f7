"""The client beside a cluster of real processes: tasks, batches, inferences, and what is said of them."""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import onnx_model as om
import pytest
from conftest import Cluster
from legacy_gpu import (
    AccessError,
    Client,
    ClusterError,
    InputError,
    NewTask,
    NotRunning,
    Session,
    TaskFailed,
    Unreachable,
    UsageError,
    WaitTimeout,
)

IMAGES = np.random.default_rng(5).integers(0, 17, (3, 1, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def client(cluster):
    return Client(data=cluster.data)


@pytest.fixture(scope="module")
def expected(digits):
    return Session(digits, device="cpu", threads=1).run(IMAGES)["logits"]


def test_an_inference_answers_what_a_session_does(client, expected):
    for given in (IMAGES, {"image": IMAGES}):
        logits = client.run("digits", given)["logits"]
        assert logits.dtype == np.float32 and logits.flags.writeable
        np.testing.assert_array_equal(logits, expected)
    np.testing.assert_array_equal(client.run("digits/1", IMAGES[:1])["logits"], expected[:1])


def test_a_task_answers_the_same(client, expected):
    task = client.submit("digits", IMAGES, priority="high", idempotency_key="one")
    np.testing.assert_array_equal(task.result(timeout=60)["logits"], expected)
    assert task.state() == "succeeded" and task.info()["worker"]
    assert client.submit("digits", IMAGES, priority="high", idempotency_key="one").id == task.id
    assert client.task(task.id).result(60)["logits"].shape == (3, 10)
    assert repr(task) == f"<legacy_gpu.Task {task.id}>"


def test_an_output_is_another_tasks_input(client, expected):
    one = client.submit("same", IMAGES)
    other = client.submit("digits", {"image": one.output("y")})
    np.testing.assert_array_equal(other.result(60)["logits"], expected)
    with pytest.raises(InputError, match="rank 2"):
        client.submit("digits", {"image": other.output("logits")})


def test_a_task_that_fails_says_why(client):
    assert client.submit("pick", np.int64(3)).result(60)["y"] == 3
    task = client.submit("pick", np.int64(10))
    with pytest.raises(TaskFailed, match="Gather") as failed:
        task.result(60)
    assert (failed.value.task_id, failed.value.code) == (task.id, "operator_failed")
    assert task.state() == "failed"


def test_a_batch_is_accepted_in_order(client, expected):
    later = NewTask("digits", {"image": IMAGES[1:2]}, depends_on=[0], priority="low")
    tasks = client.batch([NewTask("digits", {"image": IMAGES[:1]}), later])
    for i, task in enumerate(tasks):
        np.testing.assert_array_equal(task.result(60)["logits"], expected[i : i + 1])
    assert tasks[1].info()["depends_on"] == [tasks[0].id]
    with pytest.raises(ClusterError, match="task 1 of the batch"):
        client.batch([NewTask("digits", IMAGES), NewTask("none", {"image": IMAGES})])


def test_waiting_ends_in_time_and_the_task_goes_on(client):
    task = client.submit("slow", om.SQUARE)
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=task.id) as late:
        task.result(timeout=0.3)
    assert isinstance(late.value, TimeoutError) and 0.3 <= time.monotonic() - began < 10
    assert task.state() in ("queued", "running")
    assert task.cancel() == task.state() == "cancelled"
    with pytest.raises(TaskFailed, match="cancelled") as failed:
        task.result(60)
    assert failed.value.code == "cancelled"


def test_what_a_cluster_says_of_itself(client):
    assert sorted(model["name"] for model in client.models()) == ["digits", "pick", "same", "slow"]
    assert [worker["state"] for worker in client.workers()] == ["ready"]
    before = client.stats()["tasks"]["succeeded"]
    ids = [task.id for task in client.batch([NewTask("digits", {"image": IMAGES})] * 150)]
    client.task(ids[-1]).result(60)
    assert client.stats()["tasks"]["succeeded"] > before
    listed = [task["task_id"] for task in client.tasks(model="digits")]
    assert set(ids) <= set(listed) and len(set(listed)) == len(listed)
    assert [task["task_id"] for task in client.tasks(limit=120)] == listed[:120]
    assert list(client.tasks(state="queued", limit=0)) == []


def test_refusals_have_codes(client):
    for do, kind in [
        (lambda: client.run("none", {"x": IMAGES}), ClusterError),
        (lambda: client.submit("none", {"x": IMAGES}), ClusterError),
        (lambda: client.submit("none", IMAGES), ClusterError),
        (lambda: client.submit("digits", IMAGES.astype(np.int32)), InputError),
        (lambda: client.submit("digits", IMAGES, priority="urgent"), InputError),
        (lambda: client.submit("digits", IMAGES.astype(">f4")), InputError),
        (lambda: client.submit("digits", IMAGES.astype(complex)), InputError),
        (lambda: client.submit("digits", [1.0]), InputError),
        (lambda: client.task("7-7").state(), ClusterError),
        (lambda: client.task("../workers").state(), ClusterError),
    ]:
        with pytest.raises(kind) as refused:
            do()
        assert refused.value.code and refused.value.message
    with pytest.raises(TypeError, match="colour"):
        client.submit("digits", IMAGES, colour="red")


def test_a_cluster_is_found_as_the_command_line_finds_it(cluster, monkeypatch, tmp_path):
    monkeypatch.setenv("RADEON_DATA", str(cluster.data))
    assert Client().url == cluster.url
    monkeypatch.setenv("RADEON_DATA", str(tmp_path))
    with pytest.raises(NotRunning, match="radeon-cluster start"):
        Client()
    monkeypatch.delenv("RADEON_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "radeon-cluster").symlink_to(cluster.data)
    assert Client().workers()
    with pytest.raises(UsageError):
        Client(url=cluster.url, data=cluster.data)


def test_a_folder_whose_coordinator_died_has_none(cluster, tmp_path):
    (tmp_path / "coordinator.json").write_text((cluster.data / "coordinator.json").read_text())
    (tmp_path / "coordinator.lock").write_text("1")
    with pytest.raises(NotRunning):
        Client(data=tmp_path)


def test_keys_are_used_and_never_shown(cluster, monkeypatch):
    key = cluster.key
    named = Client(url=cluster.url, token=key)
    assert named.workers()
    monkeypatch.setenv("RADEON_KEY", key)
    assert Client(url=cluster.url).workers()
    wrong = key[:-4] + "aaaa"
    with pytest.raises(AccessError) as refused:
        Client(url=cluster.url, token=wrong).workers()
    monkeypatch.setenv("RADEON_KEY", f"{key}\n Injected: yes")
    with pytest.raises(AccessError) as odd:
        Client(url=cluster.url)
    for shown in (repr(named), str(refused.value), repr(refused.value), str(odd.value), repr(odd.value)):
        assert key not in shown and wrong not in shown and key.rsplit("_", 1)[-1] not in shown
    monkeypatch.delenv("RADEON_KEY")
    # Programs of the same machine may run models without one, and nothing else.
    without = Client(url=cluster.url)
    assert without.run("digits", {"image": IMAGES})["logits"].shape == (3, 10)
    with pytest.raises(AccessError):
        without.workers()


class Elsewhere(BaseHTTPRequestHandler):
    """A server that sends everybody elsewhere, and one that answers oddly or not at all."""

    heard = []
    answer = "redirect"

    def do_GET(self):
        self.heard.append((self.server.server_port, dict(self.headers)))
        if self.answer == "redirect":
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{self.other}/x")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.answer == "odd":
            self.send_response(200)
            self.send_header("Content-Length", "3")
            self.end_headers()
            self.wfile.write(b"<a>")
        elif self.answer == "large":
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 60))
            self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def elsewhere():
    servers = [HTTPServer(("127.0.0.1", 0), Elsewhere) for _ in range(2)]
    Elsewhere.heard, Elsewhere.other = [], servers[1].server_port
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield servers[0].server_port
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_key_goes_to_no_other_server(elsewhere):
    with pytest.raises(Unreachable) as refused:
        Client(url=f"http://127.0.0.1:{elsewhere}", token="lgp_secret_1").workers()
    assert refused.value.code == "redirected"
    assert [port for port, _ in Elsewhere.heard] == [elsewhere]
    assert Elsewhere.heard[0][1]["Authorization"] == "Bearer lgp_secret_1"


def test_odd_servers_and_none_are_errors(elsewhere, monkeypatch):
    for answer in ("odd", "large"):
        monkeypatch.setattr(Elsewhere, "answer", answer)
        with pytest.raises(Unreachable) as refused:
            Client(url=f"http://127.0.0.1:{elsewhere}").workers()
        assert refused.value.code == "bad_answer"
    with pytest.raises(Unreachable, match="cannot reach"):
        Client(url="http://127.0.0.1:1").workers()
    for url in ("127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://user:secret@127.0.0.1", "http://h:x"):
        with pytest.raises(UsageError, match="expected http") as refused:
            Client(url=url)
        assert "secret" not in str(refused.value)
    with pytest.raises(UsageError, match="ca is for a coordinator at https://"):
        Client(url="http://127.0.0.1:8000", ca="authority.pem")
    with pytest.raises(UsageError, match="no certificates can be read in /nonexistent"):
        Client(url="https://127.0.0.1:8000", ca="/nonexistent")


def test_certificates_are_checked(binary, tmp_path):
    cluster = Cluster(binary, tmp_path / "data", "--tls", "self-signed", "--device", "cpu")
    try:
        https = cluster.url
        assert https.startswith("https://")
        authority = tmp_path / "data/pki/authority.pem"
        assert Client(url=https, token=cluster.key, ca=authority).workers()
        with pytest.raises(Unreachable, match="certificate that is not trusted: .+\nhint: give ca="):
            Client(url=https, token=cluster.key).workers()
        with pytest.raises(Unreachable, match="does not answer in HTTP|broke the connection off"):
            Client(url=https.replace("https", "http"), token=cluster.key).workers()
        # The folder's own address is one for programs of this machine.
        assert Client(data=tmp_path / "data").workers()
    finally:
        cluster.stop()
