import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from zot.bugs import _told
from zot.core.cost import add, priced, worst_cost
from zot.provider.model import PriceTier, Rates, ServiceFactors
from zot.provider.types import Cost, Price, Usage

counts = st.integers(0, 10**9)
usages = st.builds(
    Usage, counts, counts, counts, counts, st.none() | counts, cost_known=st.booleans()
)


def test_a_call_costs_what_its_price_says():
    usage = priced(Usage(1_000_000, 2_000_000, 500_000, 100_000), Price(3.0, 15.0, 0.3, 3.75))
    assert usage.cost == Cost(3.0, 30.0, 0.15, 0.375)
    assert usage.cost.total == 33.525
    assert usage.cost_known


def test_an_unknown_price_is_said_to_be_unknown_unless_nothing_was_used():
    assert priced(Usage(1), None).cost_known is False
    assert priced(Usage(1), None).cost.total == 0
    assert priced(Usage(), None).cost_known is True
    assert priced(Usage(1), Price(0.0, 0.0)).cost_known is True


@given(usages, usages)
def test_a_sum_counts_everything_and_knows_its_cost_only_if_both_do(a, b):
    total = add(a, b)
    assert total.total == a.total + b.total
    assert total.cost_known == (a.cost_known and b.cost_known)
    assert add(b, a) == total
    if a.reasoning is None and b.reasoning is None:
        assert total.reasoning is None
    else:
        assert total.reasoning == (a.reasoning or 0) + (b.reasoning or 0)


ODD = st.one_of(
    st.integers(-(10**310), 10**310),
    st.floats(),
    st.sampled_from([float("nan"), float("inf"), -3000.0, 10**310]),
)


@given(st.tuples(ODD, ODD, ODD, ODD), st.tuples(ODD, ODD, ODD, ODD))
def test_no_usage_and_no_price_make_a_cost_below_zero_or_no_number(counts, prices):
    usage = priced(Usage(*counts, reasoning=counts[0]), Price(*prices))
    total = add(usage, usage)
    assert 0 <= usage.total <= 4 * 10**12
    assert 0 <= total.cost.total < float("inf")
    if not all(0 <= price <= 1e9 for price in prices):
        assert usage.cost.total == 0
        assert usage.cost_known == (usage.total == 0)


def test_odd_usage_is_told_once(capsys):
    _told.clear()
    for _ in range(2):
        priced(Usage(input=-5, output=3), Price(1.0, float("nan")))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0] == "zot: warning: a model call's usage is odd: its input counts as 0"
    assert "counts as unknown" in said[1]


TIERED = Price(1.0, 2.0, 0.1, 1.25, tiers=(PriceTier(1_000, Rates(5.0, 10.0, 0.5, 6.25)),))


def test_a_request_above_a_tier_costs_the_prices_of_the_tier_as_a_whole():
    at = priced(Usage(100, 10, 800, 100), TIERED).cost
    above = priced(Usage(101, 10, 800, 100), TIERED).cost
    assert at.total == pytest.approx((100 + 20 + 80 + 125) / 1e6)
    assert above.total == pytest.approx((505 + 100 + 400 + 625) / 1e6)


def test_entries_that_live_longer_have_a_price_of_their_own():
    price = Price(1.0, 2.0, 0.1, 1.25, 2.0)
    used = priced(Usage(cache_write=100, cache_write_long=60), price)
    assert used.cost.cache_write == pytest.approx((40 * 1.25 + 60 * 2.0) / 1e6)
    without = priced(Usage(cache_write=100, cache_write_long=60), Price(1.0, 2.0, 0.1, 1.25))
    assert without.cost.cache_write == pytest.approx(125e-6)


def test_the_way_a_call_was_served_changes_its_price():
    services = (ServiceFactors("flex", 0.5, 0.5, 1.0), ServiceFactors("us", 1.1, 1.1, 1.1))
    price = Price(1.0, 2.0, 0.1, 1.25, services=services)
    used = Usage(100, 100, 100, 100)
    assert priced(replace(used, service="default"), price).cost == priced(used, price).cost
    flex = priced(replace(used, service="flex us"), price).cost
    assert astuple(flex) == pytest.approx((55e-6, 110e-6, 11e-6, 68.75e-6))


def test_the_bill_of_the_provider_counts_where_it_sends_one():
    used = Usage(100, 100, billed=0.25)
    known = priced(used, Price(1.0, 3.0)).cost
    assert (known.input, known.output) == pytest.approx((0.0625, 0.1875))
    unknown = priced(used, None)
    assert (unknown.cost.total, unknown.cost_known) == (0.25, True)
    for odd in (-1.0, float("nan"), 1e300):
        assert priced(replace(used, billed=odd), Price(1.0, 1.0)).cost.total == 200e-6


def test_the_worst_cost_of_a_request_is_that_of_an_empty_cache():
    assert worst_cost(TIERED, 1_000, 10) == pytest.approx((1_250 + 20) / 1e6)
    assert worst_cost(TIERED, 1_001) == pytest.approx(1_001 * 6.25 / 1e6)
