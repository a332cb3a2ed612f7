"""Runs tasks that do nothing through another system and prints what that took, as JSON.

Usage: peers.py ray|ray-actor|dask|celery TASKS_ALONE TASKS_TOGETHER [REDIS_PORT]

Each task carries 64 bytes and answers nothing. Alone: one is submitted when the answer of the one
before it is there. Together: all are submitted at once, and every answer is waited for.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

PAYLOAD = bytes(64)


def measure(one, many, alone, together):
    one()
    many(min(together, 200))
    samples = []
    for _ in range(alone):
        began = time.perf_counter()
        one()
        samples.append((time.perf_counter() - began) * 1e6)
    samples.sort()
    began = time.perf_counter()
    many(together)
    seconds = time.perf_counter() - began

    def at(share):
        return samples[max(0, -(-len(samples) * share // 100) - 1)]

    return {
        "alone_p50_us": at(50),
        "alone_p99_us": at(99),
        "alone_per_s": len(samples) * 1e6 / sum(samples),
        "together_per_s": together / seconds,
    }


def ray_tasks(alone, together, actor):
    import ray

    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        if actor:

            @ray.remote
            class Noop:
                def run(self, payload):
                    return None

            handle = Noop.remote()
            call = handle.run.remote
        else:

            @ray.remote
            def noop(payload):
                return None

            call = noop.remote
        one = lambda: ray.get(call(PAYLOAD))
        many = lambda count: ray.get([call(PAYLOAD) for _ in range(count)])
        return measure(one, many, alone, together)
    finally:
        ray.shutdown()


def noop(payload):
    return None


def dask_tasks(alone, together):
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=1, threads_per_worker=4, processes=True, dashboard_address=None)
    client = Client(cluster)
    try:
        # Pure tasks with equal arguments would be answered from memory.
        one = lambda: client.submit(noop, PAYLOAD, pure=False).result()
        many = lambda n: client.gather([client.submit(noop, PAYLOAD, pure=False) for _ in range(n)])
        return measure(one, many, alone, together)
    finally:
        client.close()
        cluster.close()


CELERY = """
from celery import Celery
app = Celery("noop", broker="{url}", backend="{url}")
app.conf.update(task_serializer="json", result_serializer="json", worker_prefetch_multiplier=64)

@app.task(name="noop")
def noop(payload):
    return None
"""


def celery_tasks(alone, together, port):
    url = f"redis://127.0.0.1:{port}/0"
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "noop_app.py"), "w") as module:
            module.write(CELERY.format(url=url))
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "noop_app", "worker", "--concurrency=2",
             "--loglevel=ERROR", "--without-gossip", "--without-mingle"],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        try:
            sys.path.insert(0, folder)
            import noop_app

            text = PAYLOAD.hex()[:64]
            noop_app.noop.delay(text).get(timeout=60)
            one = lambda: noop_app.noop.delay(text).get(timeout=60)

            def many(count):
                for answer in [noop_app.noop.delay(text) for _ in range(count)]:
                    answer.get(timeout=120)

            return measure(one, many, alone, together)
        finally:
            worker.terminate()
            worker.wait(timeout=30)


def main():
    system, alone, together = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if system in ("ray", "ray-actor"):
        result = ray_tasks(alone, together, system == "ray-actor")
    elif system == "dask":
        result = dask_tasks(alone, together)
    elif system == "celery":
        result = celery_tasks(alone, together, int(sys.argv[4]))
    else:
        raise SystemExit(f"unknown system {system}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
