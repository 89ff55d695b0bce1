"""The stop signal and the gate by themselves; what they stop is tested with what waits."""

import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from zot.cancel import Cancel, Gate


def test_a_gate_lets_all_pass_who_wait_and_all_who_come():
    gate, passed = Gate(), []
    waiting = [threading.Thread(target=lambda: passed.append(gate.wait(30))) for _ in range(8)]
    for thread in waiting:
        thread.start()
    gate.open()
    for thread in waiting:
        thread.join(30)
    assert passed == [True] * 8
    assert gate.wait()
    assert gate.wait(0)


@given(st.one_of(st.floats(max_value=0, allow_nan=False), st.just(0)))
def test_no_time_to_wait_is_no_mistake(seconds):
    closed, cancel = Gate(), Cancel()
    assert not closed.wait(seconds)
    assert not cancel.wait(seconds)


def test_a_wait_without_an_end_is_ended_by_the_abort():
    cancel = Cancel()
    threading.Timer(0.05, cancel.set).start()
    assert cancel.wait(float("inf"))
    assert cancel.wait()
    assert cancel.wait(-1)


def test_an_abort_before_the_wait_and_a_second_one():
    cancel = Cancel()
    cancel.set()
    cancel.set()
    before = time.monotonic()
    assert cancel.wait(30)
    assert time.monotonic() - before < 30
    cancel.set()
    assert cancel.wait(30)
