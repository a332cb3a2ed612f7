"""The client's waits: for tasks and events, with asyncio and without."""

import asyncio
import threading
import time

import numpy as np
import onnx_model as om
import pytest
from legacy_gpu import Client, NewTask, TaskFailed, Unreachable, WaitTimeout
from legacy_gpu._events import Feed
from legacy_gpu._http import Server

IMAGES = np.zeros((3, 1, 8, 8), np.float32)


@pytest.fixture(scope="module")
def client(cluster):
    return Client(data=cluster.data)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "legacy_gpu request"]


def test_tasks_are_awaited_and_come_as_they_end(client):
    async def main():
        one = client.submit("digits", IMAGES)
        assert (await one)["logits"].shape == (3, 10)
        tasks = client.batch([NewTask("digits", {"image": IMAGES})] * 100)
        seen = [task.id async for task in client.as_completed(tasks)]
        assert sorted(seen) == sorted(task.id for task in tasks)
        assert len(await asyncio.gather(*tasks)) == 100

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_task_that_failed_comes_too(client):
    async def main():
        one = client.submit("digits", IMAGES)
        bad = client.submit("pick", np.int64(-11))
        ended = {task.id: task.state() async for task in client.as_completed([one, bad])}
        assert ended == {one.id: "succeeded", bad.id: "failed"}
        with pytest.raises(TaskFailed):
            await bad

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_wait_that_is_cancelled_ends_at_once(client):
    task = client.submit("slow", om.SQUARE)

    async def main():
        waiting = asyncio.ensure_future(task.ended())
        listening = asyncio.ensure_future(client.aevents().__anext__())
        await asyncio.sleep(0.2)
        began = time.monotonic()
        for one in (waiting, listening):
            one.cancel()
        ended = await asyncio.gather(waiting, listening, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
        return time.monotonic() - began

    assert asyncio.run(main()) < 2
    # What waited in threads was woken as well: long polls and quiet streams would take 15 s and more.
    until = time.monotonic() + 5
    while threads() and time.monotonic() < until:
        time.sleep(0.02)
    assert threads() == []
    assert task.cancel() == "cancelled"


def test_a_stream_of_completed_tasks_may_be_left(client):
    async def main():
        tasks = client.batch([NewTask("digits", {"image": IMAGES})] * 30)
        async for _ in client.as_completed(tasks):
            break

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 10


def scaled(cluster, workers):
    cluster.ask("scale", "--workers", str(workers))


def test_events_are_heard(client, cluster):
    events = client.events(timeout=60)
    scaled(cluster, 2)
    kinds = []
    while "worker_joined" not in kinds:
        event = next(events)
        kinds.append(event.kind)
        assert event.data["event"] == event.kind and abs(event.at_ms / 1000 - time.time()) < 600
    events.close()

    async def main():
        found = []
        async for later in client.aevents(after=event.id):
            found.append(later.kind)
            if later.kind in ("worker_left", "worker_lost"):
                return found

    scaled(cluster, 1)
    # The worker may have left before anybody listened: it is told all the same.
    assert asyncio.run(asyncio.wait_for(main(), 60))


def test_no_event_is_no_reason_to_wait_for_ever(client):
    events = client.events(timeout=0.3)
    began = time.monotonic()
    with pytest.raises(WaitTimeout):
        while True:
            next(events)
    assert time.monotonic() - began < 15


class Stream:
    """A server of events that ends each connection after one."""

    def __init__(self):
        self.heard = []
        self.blocks = [b"retry: 1\nid: a-0\n\n", b'id: a-1\ndata: {"at_ms":1,"event":"one"}\n\n',
                       b':\n\nid: a-2\ndata: {"at_ms":2,\ndata: "event":"two"}\n\nid: a-3\nda']

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        self.heard.append(head.partition("last-event-id: ")[2].partition("\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        writer.write(self.blocks[min(len(self.heard), len(self.blocks)) - 1])
        await writer.drain()
        writer.close()


def test_a_listener_comes_back_to_where_it_was():
    async def main():
        stream = Stream()
        server = await asyncio.start_server(stream.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        feed = Feed(Server(f"http://127.0.0.1:{port}", None, None), None)
        events = [await feed.anext(), await feed.anext()]
        assert [(event.id, event.kind) for event in events] == [("a-1", "one"), ("a-2", "two")]
        assert stream.heard == ["", "a-0", "a-1"]
        feed.close()
        server.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_coordinator_that_has_gone_ends_the_waiting():
    feed = Feed(Server("http://127.0.0.1:1", None, None), None)
    with pytest.raises((Unreachable, WaitTimeout)):
        feed.next(timeout=1.5)
