"""Value and Array of distsync.multiprocessing, beyond what CPython's own tests check."""

from __future__ import annotations

import ctypes
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
from helpers.leak_census import Observer
from helpers.remote_functions import general as remote
from helpers.remote_functions.general import Line, Point
from helpers.timing import UNIT, eventually
from helpers.worker_processes import Peer, Running, waiting_calls

from distsync._client.client import Client
from distsync.errors import MismatchError, PayloadTooLargeError
from distsync.multiprocessing import Array, Lock, RawArray, RawValue, Value
from distsync.multiprocessing._ctypes_views import LIMIT_BYTES


class Linked(ctypes.Structure):
    _fields_ = [("to", ctypes.POINTER(ctypes.c_int))]


# ---- between processes


def test_lock_of_a_value_excludes_other_processes(client: Client, peer: Peer) -> None:
    """Their plain accesses wait for it too."""
    value, raw = Value("i", 1, name="v"), RawValue("i", name="v")
    with value.get_lock():
        assert not peer.do(value.get_lock().acquire, False)
        peer.start(remote.set_attribute, value, "value", 5)
        with pytest.raises(AssertionError, match="has not answered"):
            peer.result(10 * UNIT)
        assert value.value == raw.value == 1
    peer.result()
    assert value.value == 5


def test_additions_under_the_lock_of_a_value_are_all_counted(client: Client, peers: list[Peer]) -> None:
    value = Value("q", 0)
    for peer in peers:
        peer.start(remote.add_to, value, 20)
    remote.add_to(value, 20)
    for peer in peers:
        peer.result()
    assert value.value == 80


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("make", [Array, RawArray])
def test_unlocked_writes_to_different_elements_are_not_lost(client: Client, peers: list[Peer], make: Any) -> None:
    array = make("i", 4)
    for place, peer in enumerate(peers):
        peer.start(remote.add_to_place, array, place, 20)
    remote.add_to_place(array, 3, 20)
    for peer in peers:
        peer.result()
    assert array[:] == [20, 20, 20, 20]


def test_read_returns_what_another_process_wrote_before(client: Client, peer: Peer) -> None:
    """Each time, with nothing in between but the reply of that process."""
    value = RawValue("i")
    for number in range(30):
        peer.do(remote.set_attribute, value, "value", number)
        assert value.value == number


def test_value_is_shared_by_its_name_alone(client: Client, peer: Peer) -> None:
    Value("i", 7, name="v")
    peer.do(remote.set_attribute, Value("i", 0, name="v"), "value", 8)
    assert Value("i", 0, name="v").value == 8


def test_value_and_array_use_the_given_lock(client: Client) -> None:
    lock = Lock(name="mine")
    value, array = Value("i", 1, lock=lock), Array("i", 2, lock=lock)
    with array:
        assert not lock.acquire(False)
        reading = Running(lambda: value.value)
        eventually(lambda: waiting_calls(client) == 1)
    assert reading.result() == 1


# ---- contents


def test_nested_fields_and_elements_are_shared(client: Client, peer: Peer) -> None:
    line = Value(Line, ((1, 1.5), (2, 2.5)), b"first")
    peer.do(remote.set_attribute, line.ends[1], "x", 22)
    peer.do(remote.set_attribute, line.ends[0], "name", -0.5)
    line.ends[1].path[2] = 9
    line.ends[0].path[:2] = [3, 4]
    line.label = b"second"
    assert [(end.x, end.name, end.path[:]) for end in line.ends] == [(1, -0.5, [3, 4, 0]), (22, 2.5, [0, 0, 9])]
    assert peer.do(remote.get_attribute, line, "label") == b"second"
    line.ends[0] = line.ends[1]
    assert line.ends[0].x == 22


def test_text_and_slices_behave_as_in_ctypes(client: Client) -> None:
    data, text = Array("c", 8), Array("u", "häß")
    data.value = b"abc"
    data[3:5] = b"de"
    assert (data.value, data.raw, data[1], data[-1], len(data)) == (b"abcde", b"abcde\0\0\0", b"b", b"\0", 8)
    data.raw = b"12345678"
    assert data.value == data[:] == b"12345678"
    assert (text.value, text[1:]) == ("häß", "äß")
    numbers = Array("d", range(4))
    numbers[::2] = [9, 8]
    assert (list(numbers), numbers[::-1]) == ([9, 1, 8, 3], [3, 8, 1, 9])


def test_access_that_ctypes_refuses_raises_and_writes_nothing(client: Client) -> None:
    value, array, point = Value("i", 1), Array("i", [1, 2]), Value(Point)
    for wrong, error in [
        (lambda: setattr(value, "value", "x"), TypeError),
        (lambda: array.__setitem__(2, 0), IndexError),
        (lambda: array.__setitem__("raw", 0), TypeError),
        (lambda: array.__setitem__(slice(0, 2), [1]), ValueError),
        (lambda: array[2], IndexError),
        (lambda: point.get_obj().z, AttributeError),
        (lambda: setattr(point.get_obj(), "z", 1), AttributeError),
    ]:
        with pytest.raises(error):
            wrong()
    assert (value.value, array[:]) == (1, [1, 2])


@pytest.mark.parametrize("kind", [ctypes.c_char_p, ctypes.py_object, Linked, Linked * 2, ctypes.c_void_p])
def test_pointer_type_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="is an address, which means nothing in another process"):
        Value(kind)


@pytest.mark.parametrize("kind", ["x", "iI", int, None])
def test_invalid_type_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="neither a type code"):
        Array(kind, 1)


def test_array_beyond_the_size_limit_is_refused(client: Client, peer: Peer) -> None:
    with pytest.raises(
        PayloadTooLargeError, match=f"{LIMIT_BYTES + 1} bytes, which exceeds the limit of {LIMIT_BYTES} bytes"
    ):
        Array("b", LIMIT_BYTES + 1)
    largest = RawArray("B", LIMIT_BYTES)
    largest[LIMIT_BYTES - 1] = 7
    assert (largest[LIMIT_BYTES - 1], largest[0]) == (7, 0)


def test_access_with_another_size_raises_mismatch_error(client: Client) -> None:
    array = Array("i", 3, name="a")
    assert array[0] == 0
    for other in (RawArray("i", 4, name="a"), RawValue("q", name="a")):
        with pytest.raises(MismatchError, match="the size in bytes of .*/shared/a is 12, not"):
            remote.set_attribute(other, "value", 1) if hasattr(type(other), "value") else other[0]
    assert array[:] == [0, 0, 0]


# ---- costs, clean-up and pickles


def test_accesses_cost_what_is_documented(client: Client) -> None:
    value, array = RawValue("i", 1), RawArray("i", 3)
    value.value, array[0] = 1, 1

    def spent(function: Callable[[], object]) -> int:
        before = sum(client.statistics().requests.values())
        function()
        return sum(client.statistics().requests.values()) - before

    assert spent(lambda: value.value) == 2
    assert spent(lambda: setattr(value, "value", 2)) == 1
    assert spent(lambda: array[0]) == 2
    assert spent(lambda: array.__setitem__(1, 1)) == 1
    assert spent(lambda: list(array)) == 2
    with Value("i", name="locked") as taken:
        assert taken


def test_unnamed_values_and_arrays_leave_no_znode_behind(client: Client, observer: Observer) -> None:
    value, array = Value("i", 3), Array("i", 3)
    paths = [value.get_obj()._cell.path, array.get_obj()._cell.path]
    with value:
        array[0] = value.value
    lock = value.get_lock()
    del value, array
    eventually(lambda: not observer.tree(paths[1]))
    assert lock.acquire()
    lock.release()
    del lock
    eventually(lambda: not observer.tree(paths[0]))


def test_pickled_value_is_the_same_shared_value(client: Client) -> None:
    point = Value(Point, 1, 2.0)
    copy = pickle.loads(pickle.dumps(point))
    copy.x += 1
    assert (point.x, type(copy).__name__, copy.get_lock().path) == (2, "SynchronizedPoint", point.get_lock().path)
    assert repr(copy).startswith("<SynchronizedPoint wrapper for <RawRecord Point of ")


# ---- NumPy


@pytest.mark.parametrize("make", [RawArray, Array])
def test_numpy_is_not_given_the_memory_of_an_array(client: Client, make: Any) -> None:
    """It would write to a private copy."""
    made = make("i", [1, 2])
    raw = made if make is RawArray else made.get_obj()
    for options in ({}, {"copy": None}, {"copy": False}, {"dtype": "f8"}):
        with pytest.raises(TypeError, match=r"server: read a copy with numpy.array\(a\[:\]\), and write with a\[:\] ="):
            raw.__array__(**options)
    if make is Array:
        with pytest.raises(ValueError, match="needs a copy"):
            made.__array__(copy=False)


def test_bytes_of_an_object_are_a_copy_and_no_buffer(client: Client) -> None:
    """The bytes of an array were its elements, one byte each."""
    array, value, point = RawArray("i", [1, 2]), RawValue("h", 3), RawValue(Point, 1, 2.0)
    assert bytes(array) == bytes((ctypes.c_int * 2)(1, 2))
    assert (bytes(value), bytes(point)) == (bytes(ctypes.c_short(3)), bytes(Point(1, 2.0)))
    for one in (array, value, point):
        with pytest.raises(TypeError, match="on a server" if sys.version_info >= (3, 12) else "required"):
            memoryview(one)  # type: ignore[arg-type]


def test_numpy_reads_copies_of_arrays_and_refuses_to_write_to_them(client: Client) -> None:
    numpy = pytest.importorskip("numpy")
    made, matrix = Array("i", [1, 2]), RawArray(ctypes.c_double * 2, 3)
    advice = r"on a server.* read a copy with .*numpy.array\(a\[:\]\), and write with a\[:\] ="
    for view in (numpy.asarray, numpy.ctypeslib.as_array, numpy.frombuffer):
        has_advice = view is not numpy.frombuffer or sys.version_info >= (3, 12)  # earlier ones have no `__buffer__`
        with pytest.raises(TypeError, match=advice if has_advice else None):
            view(made.get_obj())
    copied = numpy.asarray(made)
    assert (copied.dtype, copied.tolist()) == (numpy.dtype("i"), [1, 2])
    copied *= 2
    made[:] = copied.tolist()
    assert made[:] == numpy.array(made.get_obj()[:]).tolist() == [2, 4]
    if numpy.lib.NumpyVersion(numpy.__version__) >= "2.0.0":
        assert numpy.array(matrix, dtype="f4", copy=True).shape == (3, 2)
