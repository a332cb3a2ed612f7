"""A run leaves the interpreter to other threads, and ends where ctrl-C is pressed."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx_model as om
from legacy_gpu import Session, devices

def lasting(seconds):
    """A session whose run takes about so long here."""
    few = 8
    session = Session(om.products(few), device="cpu", threads=1)
    session.run(om.SQUARE)
    began = time.monotonic()
    session.run(om.SQUARE)
    each = (time.monotonic() - began) / few
    return Session(om.products(int(seconds / each) + 1), device="cpu", threads=1)


def counting_while(work):
    """How often another thread came to its turn while something was done, and how long that took."""
    done, turns = threading.Event(), 0

    def count():
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.002)

    counter = threading.Thread(target=count)
    counter.start()
    began = time.monotonic()
    work()
    took = time.monotonic() - began
    done.set()
    counter.join()
    return turns, took


def test_other_threads_go_on_during_a_run():
    session = lasting(1.0)
    turns, took = counting_while(lambda: session.run(om.SQUARE))
    # With the lock held it would be one or two.
    assert turns > 20, (turns, took)
    turns, took = counting_while(devices)
    assert took < 0.1 or turns > 5, (turns, took)


def test_other_threads_go_on_while_a_model_is_loaded():
    model = om.products(1500)
    turns, took = counting_while(lambda: Session(model, device="cpu", threads=1))
    assert took < 0.1 or turns > 5, (turns, took)


def test_two_sessions_run_at_once(digits):
    session = lasting(1.5)
    other = Session(digits, device="cpu", threads=1)
    ended = {}

    def long_run():
        session.run(om.SQUARE)
        ended["long"] = time.monotonic()

    thread = threading.Thread(target=long_run)
    thread.start()
    time.sleep(0.1)
    other.run(np.zeros((1, 1, 8, 8), np.float32))
    ended["short"] = time.monotonic()
    thread.join()
    assert ended["short"] < ended["long"], ended


def test_threads_share_a_session(digits):
    session = Session(digits, device="cpu", threads=1)
    images = [np.full((1, 1, 8, 8), i, np.float32) for i in range(16)]
    expected = [session.run(image)["logits"].tolist() for image in images]
    found = [None] * 16

    def run(i):
        for _ in range(20):
            found[i] = session.run(images[i])["logits"].tolist()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


INTERRUPTED = """
import os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
import test_threads
session = test_threads.lasting(4.0)
om = test_threads.om
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
try:
    session.run(om.SQUARE)
except KeyboardInterrupt:
    took = time.monotonic() - began
    # The session is as good as before.
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        session.run(om.SQUARE)
    except KeyboardInterrupt:
        print("interrupted after", took)
"""


def test_ctrl_c_ends_a_run():
    code = INTERRUPTED.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("interrupted after"), done.stdout
    # The run alone would take some four seconds, and an operator a few milliseconds.
    assert float(done.stdout.split()[-1]) < 3.0, done.stdout
