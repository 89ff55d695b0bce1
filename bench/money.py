"""Proofs about money, on loopback servers: what is counted is what is billed.

    python bench/money.py [bills] [budgets] [misses] [share] [--count N]

bills    prompts over all rows of the catalog: the server computes its bill from the data files
         with exact fractions, and zot's cost has to be equal to a hundredth of a cent
budgets  runs with a random --max-cost, compactions and retries: exceeded by one call at most
misses   injected cache misses on four APIs: each one has to be located
share    a session of 50 turns with tools: share of the input that came from the cache
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from msgspec.structs import replace  # noqa: E402
from support.caches import CachingServer  # noqa: E402
from support.provider import BASH, BY_API, READ, ask, assistant, model_of, run, user  # noqa: E402
from support.session import Recorder, SmallTool  # noqa: E402

from zot.core import events  # noqa: E402
from zot.core.agent import Limits  # noqa: E402
from zot.core.cost import cached_share  # noqa: E402
from zot.provider import catalog  # noqa: E402
from zot.provider.client import connect  # noqa: E402
from zot.provider.providers import PROVIDERS  # noqa: E402
from zot.provider.types import CacheMissed, Text  # noqa: E402
from zot.testing import fakeserver  # noqa: E402

DATA = ROOT / "src" / "zot" / "provider" / "data" / "models"
MILLION = 1_000_000


class BillingServer(fakeserver.FakeServer):
    """Answers with random counts, and bills them by the row of the data file."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.row, self.api = chance, {}, ""
        self.most = 900_000
        self.billed = Fraction(0)
        self.calls: list[Fraction] = []
        super().__init__(keep=4)

    def _build(self, call, turn, seen):
        call.want_usage = True  # Mistral sends its counts unasked
        reply = super()._build(call, turn, seen)
        counts = [self.chance.randint(0, self.most // part) for part in (2, 40, 2, 8)]
        if call.dialect == "google":
            counts[3] = 0  # it does not count what it writes
        reply.usage = tuple(counts)
        long = 0
        if call.dialect == "anthropic":
            long = self.chance.randint(0, counts[3])
            reply.billing = {"cache_creation": {"ephemeral_1h_input_tokens": long}}
        elif call.dialect == "responses":
            long = self.chance.randint(0, counts[3])
            reply.billing = {"details": {"cache_write_tokens_details": {"ttl_12h_tokens": long}}}
        services = list(self.row.get("services", {}))
        service = self.chance.choice([*services, "default"])
        if call.dialect == "google":
            words = {"priority": "ON_DEMAND_PRIORITY", "flex": "ON_DEMAND_FLEX"}
            reply.billing = {"trafficType": words[service]} if service in words else {}
            service = service if service in words else "default"
        else:
            reply.billing = {**reply.billing, "service_tier": service}
        bill = self.bill(counts, long, service)
        if call.dialect == "chat" and self.chance.random() < 0.3:
            bill = Fraction(self.chance.randint(0, 10**6), 10**6)
            reply.billing = {**reply.billing, "cost": float(bill), "is_byok": False}
        self.billed += bill
        self.calls.append(bill)
        return reply

    def bill(self, counts: list[int], long: int, service: str) -> Fraction:
        fresh, output, read, written = counts
        rates = self.row["price"]
        for above, *dearer in self.row.get("tiers", []):
            if fresh + read + written > above:
                rates = dearer
        rates = [Fraction(str(rate)) for rate in rates]
        more = rates[4] if len(rates) > 4 else rates[3]
        factors = [Fraction(str(f)) for f in self.row.get("services", {}).get(service, (1, 1, 1))]
        dollars = (fresh * rates[0] + (written - long) * rates[3] + long * more) * factors[0]
        dollars += output * rates[1] * factors[1] + read * rates[2] * factors[2]
        return dollars / MILLION


def rows() -> list[tuple[str, dict]]:
    found = []
    for name, info in PROVIDERS.items():
        if info.catalog == name:
            listed = json.loads((DATA / f"{name}.json").read_text())["models"]
            found += [(name, row) for row in listed]
    return found


def opened(server, provider: str, id: str, **options) -> Recorder:
    model = catalog.find(provider, id)
    base = server.url + "/v1" if model.api == "openai-responses" else server.url
    made = connect(PROVIDERS[provider], model, "sk-canary", base)
    return Recorder([], provider=made, model=model, **options)


def bills(count: int) -> bool:
    chance, wrong, prompts, unknown = random.Random(1), [], 0, 0
    listed = rows()
    with BillingServer(chance) as server:
        while prompts < count:
            for provider, row in listed:
                if prompts >= count:
                    break
                if "price" not in row:
                    unknown += 1
                    continue
                server.row, server.billed = row, Fraction(0)
                server.most = row.get("context", 128_000)
                settings = {"compact_at": None, "cache": "off"}
                with opened(server, provider, row["id"], settings=settings) as it:
                    for _ in range(5):
                        _, ended = it.prompt("text:1")
                        prompts += 1
                        if ended.stop != "end":
                            wrong.append(f"{provider}/{row['id']}: {ended.error}")
                    cost = it.runtime.state().usage.cost.total
                it.provider.close()
                if abs(cost - float(server.billed)) > 1e-4:
                    wrong.append(f"{provider}/{row['id']}: {cost} counted, {server.billed} billed")
    print(f"bills: {prompts} prompts, {len(listed)} rows, {len(wrong)} wrong")
    for line in wrong[:20]:
        print("  ", line)
    return not wrong


def budgets(count: int) -> bool:
    chance, wrong, calls = random.Random(2), [], 0
    listed = [(name, row) for name, row in rows() if row.get("price", [0])[0] > 0]
    tool = SmallTool("t", lambda args, context: "x" * chance.randint(0, 4_000))
    script = "\nthen\n".join(["tool:t"] * 12) + "\nthen\ntext:1"
    with BillingServer(chance) as server:
        for number in range(count):
            name, row = chance.choice(listed)
            server.row, server.billed, server.calls = row, Fraction(0), []
            server.most = row.get("context", 128_000) // 2
            most = chance.choice([0.001, 0.01, 0.1, 1.0, 5.0])
            with opened(server, name, row["id"], tools=[tool]) as it:
                text = script + (" status:529:1" if number % 3 == 0 else "")
                _, ended = it.prompt(text, limits=Limits(max_cost=most, max_steps=40))
            it.provider.close()
            calls += len(server.calls)
            before = float(server.billed - (server.calls[-1] if server.calls else 0))
            if before > most + 1e-9:
                wrong.append(f"{name}/{row['id']}: {before} before the last call, limit {most}")
    print(f"budgets: {count} runs, {calls} calls, {len(wrong)} exceeded by more than one call")
    for line in wrong[:20]:
        print("  ", line)
    return not wrong


def misses(count: int) -> bool:
    chance, wrong, false = random.Random(3), [], 0
    for api, provider in BY_API.items():
        model = model_of(provider)
        with CachingServer() as server:
            made = connect(PROVIDERS[provider], model, "sk-canary", server.url)
            for number in range(count // len(BY_API)):
                size = chance.randint(4, 10)
                request = conversation(model, size, f"{api} {number}")
                for turns in (size - 1, size):
                    events_, _ = run(made, conversation(model, turns, f"{api} {number}"))
                    false += any(isinstance(event, CacheMissed) for event in events_)
                changed, expected = injected(request, chance)
                if expected[0] == "unknown":
                    server.forget()
                events_, _ = run(made, changed)
                found = [event for event in events_ if isinstance(event, CacheMissed)]
                told = [(event.cause, event.position) for event in found]
                if told != [expected]:
                    wrong.append(f"{api}: {expected} injected, {told} told")
            made.close()
    print(f"misses: {count} injected, {len(wrong)} not located, {false} told without one")
    for line in wrong[:20]:
        print("  ", line)
    return not wrong and not false


def conversation(model, turns: int, key: str):
    said = []
    for number in range(turns):
        said += [user(f"{key} {number} " + "words " * 600), assistant(model, Text("fine"))]
    said.append(user(f"{turns} " + "words " * 600))
    request = ask(model, *said, cache_key=key)
    return replace(request, system=key + " be brief " * 700)


def injected(request, chance: random.Random):
    """The next request with one change, and the cause and position to be told."""
    kind = chance.choice(["tools", "system", "message", "unknown"])
    if kind == "tools":
        at = chance.choice([0, 1])
        tools = [BASH, READ]
        tools[at] = replace(tools[at], description="another")
        return replace(request, tools=tuple(tools)), (kind, at)
    if kind == "system":
        at = chance.randrange(len(request.system))
        system = request.system[:at] + "\0" + request.system[at + 1 :]
        return replace(request, system=system), (kind, at)
    if kind == "message":
        # Those at the end are shorter than what a provider may leave out.
        at = chance.randrange((len(request.messages) - 4) // 2) * 2
        said = list(request.messages)
        said[at] = user("another " + "words " * 600)
        return replace(request, messages=tuple(said)), (kind, at)
    return request, (kind, None)


LINES = SmallTool("t", lambda args, context: "line of output\n" * 60)


def share(count: int) -> bool:
    good = True
    for provider in ("anthropic", "openai-responses", "google"):
        with CachingServer() as server:
            model = model_of(provider)
            made = connect(PROVIDERS[provider], model, "sk-canary", server.url)
            told = []
            options = {"tools": [LINES], "system": lambda: "You are an agent. " * 1_500}
            with Recorder([], provider=made, model=model, **options) as it:
                for turn in range(50):
                    calls = " ".join(["tool:t"] * (12 if turn % 10 == 9 else 2))
                    told += it.prompt(f"{calls}\nthen\ntext:20")[0]
                    server.now += 60
                usage = it.runtime.state().usage
            made.close()
            missed = sum(isinstance(event, events.CacheMissed) for event in told)
            part = cached_share(usage)
            good = good and part >= 0.97 and not missed
            print(
                f"share: {provider} {part:.2%} of {len(server.counts)} calls with"
                f" {usage.input + usage.cache_read + usage.cache_write} tokens, {missed} misses,"
                f" ${usage.cost.total:.2f}"
            )
    return good


def main() -> None:
    parts = {"bills": (bills, 10_000), "budgets": (budgets, 500), "misses": (misses, 500)}
    parts["share"] = (share, 50)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(parts))
    parser.add_argument("--count", type=int)
    args = parser.parse_args()
    good = True
    for name in args.parts or parts:
        work, usual = parts[name]
        started = time.monotonic()
        good = work(args.count or usual) and good
        print(f"  {time.monotonic() - started:.0f} s")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
