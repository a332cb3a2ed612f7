"""What a client makes of answers that are late, odd, or of a cluster in which no coordinator leads."""

import asyncio
import http.client
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from legacy_gpu import AccessError, Client, ClusterError, InputError, NewTask, TaskFailed, Unreachable, WaitTimeout
from legacy_gpu._answers import failed, refused
from legacy_gpu._client import Output

NO_LEADER = (503, {"error": {"code": "no_leader", "message": "no coordinator leads", "hint": "try again"}})
BUSY = (503, {"error": {"code": "busy", "message": "too many wait", "hint": None}})
INPUTS = {"x": np.zeros(1, np.float32)}


class Handler(BaseHTTPRequestHandler):
    """Answers as the test says: with a status and JSON, or with headers and then nothing."""

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        told = self.server.told(self.path)
        if told == "nothing":
            self.server.ended.wait(10)
            return
        self.send_response(200 if told == "headers" else told[0])
        body = b"{}" if told == "headers" else json.dumps(told[1]).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if told == "headers":
            self.server.ended.wait(10)
        else:
            self.wfile.write(body)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.ended, made.url = threading.Event(), f"http://127.0.0.1:{made.server_port}"
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.ended.set()
    made.shutdown()
    made.server_close()


@pytest.fixture
def client(server):
    return Client(url=server.url, token="lgp_a_b")


def test_a_state_is_told_or_an_error(server, client):
    task = client.task("1-1")
    server.told = lambda path: NO_LEADER
    for ask in (task.state, task.info, task.cancel):
        with pytest.raises(ClusterError) as refusal:
            ask()
        assert (refusal.value.code, refusal.value.hint) == ("no_leader", "try again")
    with pytest.raises(WaitTimeout, match="1-1"):
        task.result(timeout=0.3)
    for odd in ({"state": None}, {}, [], {"status": "queued"}):
        server.told = lambda path, odd=odd: (200, odd)
        for ask in (task.state, task.cancel, task.result):
            with pytest.raises(Unreachable, match="without 'state', expected a str"):
                ask()
    server.told = lambda path: (200, {"state": "running"})
    assert task.state() == "running"
    # What was known before is not told as if it were of now.
    server.told = lambda path: NO_LEADER
    with pytest.raises(ClusterError):
        task.state()


def test_those_who_wait_outlast_a_change_of_the_leader(server, client):
    for first in (NO_LEADER, BUSY):
        left = [first, NO_LEADER, (200, {"state": "queued"}), (200, {"state": "failed", "error": {"code": "run_limit"}})]
        server.told = lambda path: left.pop(0)
        task = client.task("1-1")

        async def main():
            assert (await asyncio.wait_for(task.ended(), 30)).state() == "failed"
            with pytest.raises(TaskFailed, match="task 1-1 failed: without a reason") as failure:
                await task
            assert failure.value.code == "run_limit"

        asyncio.run(main())
        assert left == []


def test_a_wait_that_was_too_long_names_its_limit(server, client):
    for silent in ("nothing", "headers"):
        server.told = lambda path, silent=silent: silent
        with pytest.raises(Unreachable, match=r"nothing was heard of the coordinator at \S+ for 0\.25 s") as late:
            client.run("m", INPUTS, timeout=0.25)
        assert late.value.code == "not_answering" and "coordinator.log" in late.value.hint
    for timeout in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=f"timeout is {timeout} s, expected more than 0"):
            client.run("m", INPUTS, timeout=timeout)


def test_answers_without_what_was_asked_for(server, client):
    for told, do, name in [
        ({}, lambda: client.submit("m", INPUTS), "'task_id', expected a str"),
        ({"task_id": 3}, lambda: client.submit("m", INPUTS), "'task_id', expected a str"),
        ([], lambda: client.batch([NewTask("m", INPUTS)]), "'tasks', expected a list"),
        ({"tasks": [{}]}, lambda: client.batch([NewTask("m", INPUTS)]), "'task_id', expected a str"),
        ({"name": "m"}, lambda: client.run("m", INPUTS["x"]), "'inputs', expected a list"),
        ([], lambda: client.run("m", INPUTS), "'outputs', expected a list"),
        (None, lambda: client.run("m", INPUTS), "'outputs', expected a list"),
        ({"outputs": "y"}, lambda: client.run("m", INPUTS), "'outputs', expected a list"),
        ({"state": "succeeded", "outputs": {"y": [1]}}, client.task("1-1").result, "'outputs', expected a list"),
        ({"state": "failed", "error": "no memory"}, client.task("1-1").result, "'error', expected a dict"),
        ({"tasks": []}, lambda: list(client.tasks()), "of the type dict, expected a list"),
        (None, lambda: list(client.tasks(limit=1)), "of the type NoneType, expected a list"),
        ({}, client.models, "of the type dict, expected a list"),
        ("none", client.workers, "of the type str, expected a list"),
        ([], client.stats, "of the type list, expected a dict"),
    ]:
        server.told = lambda path, told=told: (200, told)
        with pytest.raises(Unreachable, match=name) as odd:
            do()
        assert (odd.value.code, "no other server" in odd.value.hint) == ("bad_answer", True), str(odd.value)
    for outputs in ([None], ["y"], [{"name": "y", "parameters": "many"}], [{"name": "y", "shape": [1]}]):
        server.told = lambda path, outputs=outputs: (200, {"state": "succeeded", "outputs": outputs})
        for do in (lambda: client.run("m", INPUTS), client.task("1-1").result):
            with pytest.raises(Unreachable, match="the answer's outputs cannot be read") as odd:
                do()
            assert (odd.value.code, "another version" in odd.value.hint) == ("bad_answer", True), str(odd.value)
    server.told = lambda path: (200, {"state": "succeeded", "outputs": None})
    assert client.run("m", INPUTS) == client.task("1-1").result() == {}
    server.told = lambda path: (200, {"state": "cancelled", "error": {"code": None, "message": None}})
    with pytest.raises(TaskFailed, match="task 1-1 cancelled: without a reason") as failure:
        client.task("1-1").result()
    assert failure.value.code == "task_failed"


def test_what_is_refused_before_it_is_sent(server, client):
    server.told = lambda path: (200, {"inputs": [{"name": "a"}, {"name": "b"}]})
    with pytest.raises(InputError, match="the model has 2 inputs, expected a dictionary") as several:
        client.run("m", INPUTS["x"])
    assert several.value.hint == 'give {"a": ..., "b": ...}'
    with pytest.raises(InputError, match="input 'x' is an output of task 1-1") as output:
        client.run("m", {"x": Output("1-1", "y")})
    assert "submit" in output.value.hint


def test_refusals_are_told_whole():
    for status, body, kind, code, part in [
        (403, {"error": {"code": "forbidden", "message": "no", "hint": "make a key"}}, AccessError, "forbidden", "no"),
        (400, {"error": {"code": "bad_input", "message": "rank is 1"}}, InputError, "bad_input", "rank is 1"),
        (500, {"error": {}}, ClusterError, "refused", "answered 500 without a reason"),
        (404, {"error": "no such model"}, ClusterError, "not_found", "no such model"),
        (502, [], ClusterError, "refused", "answered 502 without a reason, expected JSON"),
        (307, {}, Unreachable, "redirected", "(307)"),
    ]:
        error = refused("http://h", status, json.dumps(body).encode())
        assert (type(error), error.code) == (kind, code) and part in error.message
        assert "None" not in str(error)


def test_failures_say_what_to_do():
    expired = ssl.SSLCertVerificationError(1, "certificate verify failed")
    expired.verify_message, expired.verify_code = "certificate has expired", 10
    for error, is_connected, code, message, hint in [
        (ConnectionRefusedError("refused"), False, "unreachable", "cannot reach http://h", "radeon-cluster start"),
        (ConnectionResetError("reset"), True, "unreachable", "broke the connection off", "ask again"),
        (http.client.RemoteDisconnected("closed"), True, "unreachable", "broke the connection off", "ask again"),
        (http.client.IncompleteRead(b"", 5), True, "unreachable", "broke the connection off", "ask again"),
        (http.client.BadStatusLine("?"), True, "bad_answer", "does not answer in HTTP", "https://"),
        (TimeoutError(), True, "not_answering", "for 7 s", "coordinator.log"),
        (ssl.SSLError(1, "wrong version number"), False, "unreachable", "cannot speak TLS", "http://"),
        (expired, False, "unreachable", "not trusted: certificate has expired", "authority.pem"),
    ]:
        told = failed("http://h", error, 7.0, is_connected)
        assert (told.code, message in told.message, hint in told.hint) == (code, True, True), str(told)
    defect = ZeroDivisionError()
    assert failed("http://h", defect, 7.0, True) is defect
