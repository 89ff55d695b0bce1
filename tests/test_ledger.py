import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.cancel import Cancel
from zot.errors import Cancelled, ConfigError, LimitError
from zot.ledger import Amount, Ledger, Spending


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(str(tmp_path / "ledger.json"))
    made.limit(10.0, None)
    return made


def test_what_fits_is_let_through_and_what_was_spent_is_booked(ledger):
    ledger.reserve("1", Amount(4.0), Cancel())
    ledger.reserve("2", Amount(4.0), Cancel())
    ledger.book("1", "first", Amount(0.5, 100))
    spending = ledger.read()
    assert spending.total() == Amount(0.5, 100)
    assert spending.reserved == {"2": Amount(4.0)}
    assert spending.summary() == "$0.5000 of $10"


def test_who_does_not_fit_waits_for_the_others(ledger):
    ledger.reserve("1", Amount(8.0), Cancel())
    through = threading.Event()

    def second():
        ledger.reserve("2", Amount(8.0), Cancel())
        through.set()

    thread = threading.Thread(target=second)
    thread.start()
    assert not through.wait(0.5)
    ledger.book("1", "first", Amount(1.0))
    assert through.wait(30)
    thread.join()


def test_the_last_call_goes_alone_and_then_nothing_is_left(ledger):
    ledger.book("1", "first", Amount(9.5))
    ledger.reserve("1", Amount(8.0), Cancel())  # it may not fit, but nobody else spends now
    ledger.book("1", "first", Amount(12.0))
    with pytest.raises(LimitError, match=r"used up: \$12.0000 of \$10"):
        ledger.reserve("2", Amount(0.0), Cancel())


def test_one_that_waits_can_be_cancelled(ledger):
    ledger.reserve("1", Amount(8.0), Cancel())
    cancel = Cancel()
    threading.Timer(0.3, cancel.set).start()
    with pytest.raises(Cancelled):
        ledger.reserve("2", Amount(8.0), cancel)


def test_what_a_dead_process_had_reserved_counts_as_spent(ledger):
    ledger.reserve("1", Amount(2.0), Cancel())
    ledger.reserve("2", Amount(3.0), Cancel())
    ledger.release(frozenset({"2"}))
    assert ledger.read().total() == Amount(2.0)
    assert set(ledger.read().reserved) == {"2"}
    ledger.release(frozenset({"2"}))
    assert ledger.read().total() == Amount(2.0)


def test_tokens_can_be_limited_too(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.json"))
    ledger.reserve("1", Amount(1e9, 10**9), Cancel())  # no limit yet
    ledger.limit(None, 100)
    ledger.book("1", "first", Amount(0.0, 100))
    with pytest.raises(LimitError, match="100 of 100 tokens"):
        ledger.reserve("1", Amount(), Cancel())


def test_a_ledger_that_is_broken_is_named(tmp_path):
    (tmp_path / "ledger.json").write_text("{")
    with pytest.raises(ConfigError, match=r"ledger\.json' cannot be read"):
        Ledger(str(tmp_path / "ledger.json")).read()


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5), st.floats(0, 1)), max_size=40))
def test_the_limit_is_passed_by_one_call_at_most(steps):
    """Any order of calls of four processes, each of which costs at most what was reserved."""
    spending = Spending(max_usd=10.0)
    for number, worst, part in steps:
        who = str(number)
        if who in spending.reserved:  # its call ends
            cost = spending.reserved[who].usd * part
            before = spending.spent.get(who, Amount())
            kept = {name: held for name, held in spending.reserved.items() if name != who}
            spending = Spending(10.0, None, {**spending.spent, who: before + Amount(cost)}, kept)
        elif not spending.is_used_up() and spending.has_room(who, Amount(worst)):
            reserved = {**spending.reserved, who: Amount(worst)}
            spending = Spending(10.0, None, spending.spent, reserved)
        calls = [held.usd for held in spending.reserved.values()]
        at_worst = spending.total().usd + sum(calls)
        assert at_worst <= 10.0 + 1e-9 or len(calls) <= 1
    assert spending.total().usd <= 10.0 + 5.0


def test_minutes_can_be_limited_too_and_are_booked_while_they_pass(ledger):
    ledger.limit(10.0, None, 2.0)
    ledger.reserve("1", Amount(1.0), Cancel())
    ledger.book_time({"first": Amount(0.5, 7, 100.0)})
    assert ledger.read().reserved == {"1": Amount(1.0)}
    assert ledger.read().summary() == "$0.5000 of $10 and 1.7 of 2 minutes"
    ledger.reserve("2", Amount(1.0), Cancel())
    ledger.book_time({"first": Amount(0.5, 7, 121.0)})
    with pytest.raises(LimitError, match="2.0 of 2 minutes"):
        ledger.reserve("2", Amount(1.0), Cancel())
