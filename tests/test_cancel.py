import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.patience import PATIENCE

from zot.cancel import Cancel
from zot.errors import Cancelled


def test_once_set_it_stays_set_and_everyone_hears():
    cancel = Cancel()
    assert not cancel.is_set()
    cancel.check()
    assert cancel.wait(0.001) is False
    cancel.sleep(0.001)
    cancel.set()
    cancel.set()
    assert cancel.is_set()
    assert cancel.wait() is True
    for raises in (cancel.check, lambda: cancel.sleep(PATIENCE)):
        with pytest.raises(Cancelled):
            raises()


def test_a_sleep_ends_at_once():
    cancel, ended = Cancel(), threading.Event()

    def sleep():
        try:
            cancel.sleep(PATIENCE)
        except Cancelled:
            ended.set()

    thread = threading.Thread(target=sleep)
    thread.start()
    cancel.set()
    assert ended.wait(PATIENCE)
    thread.join()


def test_callbacks_run_while_their_block_runs_and_not_after():
    cancel, heard = Cancel(), []
    with cancel.calling(lambda: heard.append("early")):
        pass
    with cancel.calling(lambda: heard.append("inside")):
        cancel.set()
        assert heard == ["inside"]
    with cancel.calling(lambda: heard.append("late")):
        assert heard == ["inside", "late"]


def test_cancelled_is_no_failure():
    assert not issubclass(Cancelled, Exception)


@given(st.one_of(st.floats(max_value=0, allow_nan=False), st.just(0)))
def test_no_time_to_wait_is_no_mistake(seconds):
    assert not Cancel().wait(seconds)


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


def test_the_watcher_hears_of_an_abort_once_whenever_it_comes():
    heard = []
    before, during, after = Cancel(), Cancel(), Cancel()
    before.set()
    before.watch_with(lambda: heard.append("before"))
    during.watch_with(lambda: heard.append("during"))
    during.set()
    during.set()
    after.watch_with(lambda: heard.append("after"))
    after.watch_with(None)
    after.set()
    assert heard == ["before", "during"]


def test_who_watches_over_the_end_hears_first_whatever_the_others_do():
    cancel, heard = Cancel(), []
    cancel.watch_with(lambda: heard.append("watcher"))
    with cancel.calling(lambda: 1 / 0), pytest.raises(ZeroDivisionError):
        cancel.set()
    assert heard == ["watcher"]
