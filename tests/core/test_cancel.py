import threading

import pytest

from zot.cancel import Cancel
from zot.errors import Cancelled

PATIENCE = 20.0


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
