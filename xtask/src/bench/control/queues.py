"""Runs tasks that do nothing through a queue on Redis and prints what that took, as JSON.

Usage: queues.py celery|dramatiq TASKS CALLERS ALONE REDIS_PORT

Each task carries 64 bytes and answers nothing. Many threads submit all tasks, and every answer is then
waited for. Alone: one is submitted when the answer of the one before it is there. A task is acknowledged
once it has run.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

TEXT = bytes(32).hex()

CELERY = """
from celery import Celery
app = Celery("noop", broker="{url}", backend="{url}")
app.conf.update(
    task_serializer="json", result_serializer="json", worker_prefetch_multiplier=64,
    task_acks_late=True, broker_pool_limit={callers}, redis_max_connections={connections},
)

@app.task(name="noop")
def noop(payload):
    return None

def submit(text):
    return noop.delay(text)

def wait(submitted):
    return submitted.get(timeout=120)
"""

DRAMATIQ = """
import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

broker = RedisBroker(url="{url}")
broker.add_middleware(Results(backend=RedisBackend(url="{url}")))
dramatiq.set_broker(broker)

@dramatiq.actor(store_results=True)
def noop(payload):
    return None

def submit(text):
    return noop.send(text)

def wait(submitted):
    return submitted.get_result(block=True, timeout=120_000)
"""

SYSTEMS = {
    "celery": (CELERY, ["celery", "-A", "noop_app", "worker", "--concurrency=2", "--loglevel=ERROR",
                        "--without-gossip", "--without-mingle"]),
    "dramatiq": (DRAMATIQ, ["dramatiq", "noop_app", "--processes", "2", "--threads", "4"]),
}


def middle(samples):
    return sorted(samples)[len(samples) // 2] * 1e3


def timed(call):
    began = time.perf_counter()
    answer = call()
    return time.perf_counter() - began, answer


def measure(app, tasks, callers, alone):
    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        submit = lambda _: timed(lambda: app.submit(TEXT))
        for _, submitted in pool.map(submit, range(callers * 4)):
            app.wait(submitted)
        began = time.perf_counter()
        accepted = list(pool.map(submit, range(tasks)))
        accepted_s = time.perf_counter() - began
        for _, submitted in accepted:
            app.wait(submitted)
        ended_s = time.perf_counter() - began
    accepts, lives = [], []
    for _ in range(alone):
        life, accept = timed(lambda: alone_once(app))
        accepts.append(accept)
        lives.append(life)
    return {
        "accepted_per_s": tasks / accepted_s,
        "ended_per_s": tasks / ended_s,
        "accept_p50_ms": middle([seconds for seconds, _ in accepted]),
        "alone_accept_p50_ms": middle(accepts),
        "alone_life_p50_ms": middle(lives),
    }


def alone_once(app):
    accept, submitted = timed(lambda: app.submit(TEXT))
    app.wait(submitted)
    return accept


def main():
    system, (tasks, callers, alone, port) = sys.argv[1], map(int, sys.argv[2:6])
    module, worker = SYSTEMS[system]
    url = f"redis://127.0.0.1:{port}/0"
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "noop_app.py"), "w") as file:
            file.write(module.format(url=url, callers=callers, connections=4 * callers))
        worker = subprocess.Popen([sys.executable, "-m", *worker], cwd=folder,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            sys.path.insert(0, folder)
            import noop_app

            noop_app.wait(noop_app.submit(TEXT))
            print(json.dumps(measure(noop_app, tasks, callers, alone)))
        finally:
            worker.terminate()
            worker.wait(timeout=30)


if __name__ == "__main__":
    main()
