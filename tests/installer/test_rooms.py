"""Buffers are used again, and stay within their budget whatever is asked."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st

from envbundle.installer.rooms import Rooms


def test_a_buffer_given_back_is_the_next_one_taken() -> None:
    rooms = Rooms(100)
    first = rooms.take(60, 10)
    rooms.give(10, first)
    assert rooms.take(50, 0) is first


def test_idle_buffers_give_way_to_a_larger_one() -> None:
    rooms = Rooms(100)
    small = rooms.take(40, 0)
    rooms.give(0, small)
    large = rooms.take(90, 0)
    assert len(large) == 90
    rooms.give(0, large)
    assert rooms.take(30, 0) is large, "the small one was dropped to stay within the budget"


def test_more_than_the_budget_is_had_alone() -> None:
    rooms = Rooms(100)
    held = rooms.take(10, 0)
    got: list[bytearray] = []
    thread = threading.Thread(target=lambda: got.append(rooms.take(500, 0)))
    thread.start()
    thread.join(0.05)
    assert not got, "somebody else holds a buffer"
    rooms.give(0, held)
    thread.join(10)
    assert [len(room) for room in got] == [500]


@settings(max_examples=25, deadline=None)
@given(asked=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=40))
def test_threads_together_stay_within_the_budget(asked: list[tuple[int, int]]) -> None:
    rooms, lock, held, most = Rooms(100), threading.Lock(), [0], [0]

    def use(one: tuple[int, int]) -> bool:
        plain, stored = one
        room = rooms.take(plain, stored)
        with lock:
            held[0] += len(room) + stored
            most[0] = max(most[0], held[0])
        fits = len(room) >= plain
        with lock:
            held[0] -= len(room) + stored
        rooms.give(stored, room)
        return fits

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, asked))
    assert most[0] <= 100
