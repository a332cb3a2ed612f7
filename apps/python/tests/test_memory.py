"""Arrays are not copied: neither on their way in, nor out, nor through DLPack."""

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_model as om
import pytest
from legacy_gpu import InputError, Session, _arrays


def add():
    type_ = om.tensor_type(om.FLOAT, ("n",))
    return om.model([om.node("Add", ["x", "x"], ["y"])], [("x", type_)], [("y", type_)])


def place(array):
    return array.__array_interface__["data"][0]


def test_inputs_are_borrowed_where_they_lie():
    array = np.zeros((3, 4), np.float32)
    for lies in (array, array[1:], np.frombuffer(bytes(16), np.float32)):
        handed_over = _arrays.as_bytes(_arrays.in_order(_arrays.as_array("x", lies)))
        assert np.shares_memory(handed_over, lies) and place(handed_over) == place(lies)
        assert handed_over.nbytes == lies.nbytes
    for copied in (array[:, ::2], array.T):
        assert not np.shares_memory(_arrays.in_order(copied), array)


def test_an_array_that_nobody_may_write_to_is_taken():
    session = Session(add(), device="cpu", threads=1)
    array = np.ones(4, np.float32)
    array.flags.writeable = False
    assert session.run(array)["y"].tolist() == [2, 2, 2, 2]


def test_outputs_lie_where_the_run_left_them_and_are_the_callers_own():
    session = Session(add(), device="cpu", threads=1)
    array = np.arange(1000, dtype=np.float32)
    one, two = (session.run(array)["y"] for _ in range(2))
    owner = one.base
    assert type(owner).__name__ == "Array"
    assert place(one) == place(owner) and not one.flags.owndata and one.flags.writeable
    assert not np.shares_memory(one, two) and not np.shares_memory(one, array)
    del session, owner
    gc.collect()
    one[:] = 7
    np.testing.assert_array_equal(two, array * 2)
    assert (one == 7).all()
    # A view of it keeps the memory as well.
    view = one[10:20]
    del one
    gc.collect()
    assert (view == 7).all()


def test_what_a_session_keeps_is_not_given_away():
    constant = np.arange(4, dtype=np.float32)
    type_ = om.tensor_type(om.FLOAT, (4,))
    nodes = [om.node("Identity", ["c"], ["y"]), om.node("Identity", ["x"], ["z"]), om.node("Identity", ["x"], ["w"])]
    kept = om.model(nodes, [("x", type_)], [(name, type_) for name in "yzw"], [om.tensor("c", constant)])
    session = Session(kept, device="cpu", threads=1)
    given = np.full(4, 5, np.float32)
    answer = session.run(given)
    for array in answer.values():
        array[:] = -1
        assert not any(np.shares_memory(array, other) for other in answer.values() if other is not array)
    assert given.tolist() == [5, 5, 5, 5]
    again = session.run(given)
    assert again["y"].tolist() == constant.tolist() and again["z"].tolist() == again["w"].tolist() == given.tolist()


MEASURED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import numpy as np
import test_memory
from legacy_gpu import Session

page = resource.getpagesize()
session = Session(test_memory.add(), device="cpu", threads=1)
session.run(np.ones(10, np.float32))
array = np.ones(24 << 20, np.float32)
before = int(Path("/proc/self/statm").read_text().split()[1]) * page
answer = session.run(array)["y"]
assert answer[0] == answer[-1] == 2
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) >> 20)
"""


def test_a_large_tensor_takes_the_memory_of_one_output():
    """96 MiB go in and as many come out: a copy of either would be seen."""
    code = MEASURED.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    grown_mib = int(done.stdout)
    print(f"peak grew by {grown_mib} MiB")
    assert 90 <= grown_mib <= 130


class Foreign:
    """What another library's tensor is, to whoever knows DLPack alone."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class OnACard(Foreign):
    def __dlpack__(self, **options):
        raise BufferError("it is in a card's memory")

    def __dlpack_device__(self):
        return (2, 0)


def test_tensors_of_other_libraries_come_in_by_dlpack():
    array = np.arange(5, dtype=np.float32)
    assert place(_arrays.as_array("x", Foreign(array))) == place(array)
    session = Session(add(), device="cpu", threads=1)
    assert session.run(Foreign(array))["y"].tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(InputError, match="input 'x' cannot be taken through DLPack") as refused:
        session.run(OnACard(array))
    assert refused.value.code == "input_invalid" and "x.cpu()" in refused.value.hint


def test_outputs_go_to_other_libraries_by_dlpack():
    answer = Session(add(), device="cpu", threads=1).run(np.ones(5, np.float32))["y"]
    taken = np.from_dlpack(answer)
    assert np.shares_memory(taken, answer)
    del answer
    gc.collect()
    assert taken.tolist() == [2] * 5
