"""A spending limit that several processes share: a file with spent and reserved amounts.

Before a model call its worst case is reserved, and afterwards its actual cost is booked. A call
is allowed if everything spent and reserved stays within the limit; it is also allowed if there is
no other reservation and something is left, so the limit is exceeded by one call at most. Other
calls wait. Time cannot be reserved: it is booked as it passes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from zot.cancel import Cancel
from zot.errors import ConfigError, LimitError
from zot.files import locked, read_bytes, write_atomic

LOOK_SECONDS = 0.2


class Amount(Struct, frozen=True):
    usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    """Working time: the model generates or a tool runs."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.usd + other.usd, self.tokens + other.tokens, self.seconds + other.seconds
        )


class Spending(Struct, frozen=True):
    """The content of the file."""

    max_usd: float | None = None
    max_tokens: int | None = None
    spent: dict[str, Amount] = {}
    """Amounts by the name of the spender."""
    reserved: dict[str, Amount] = {}
    """Amounts by the process that may be spending them now."""
    max_minutes: float | None = None

    def total(self) -> Amount:
        return sum(self.spent.values(), Amount())

    def is_used_up(self) -> bool:
        return self._exceeds(self.total(), at_least=True)

    def has_room(self, who: str, amount: Amount) -> bool:
        others = [held for name, held in self.reserved.items() if name != who]
        wanted = sum(others, self.total() + amount)
        return not self._exceeds(wanted) or (not others and not self.is_used_up())

    def _exceeds(self, amount: Amount, *, at_least: bool = False) -> bool:
        for limit, value in (
            (self.max_usd, amount.usd),
            (self.max_tokens, amount.tokens),
            (self.max_minutes, amount.seconds / 60),
        ):
            if limit is not None and (value > limit or (at_least and value >= limit)):
                return True
        return False

    def summary(self) -> str:
        total = self.total()
        parts = [f"${total.usd:.4f} of ${self.max_usd:g}"] if self.max_usd is not None else []
        if self.max_tokens is not None:
            parts.append(f"{total.tokens} of {self.max_tokens} tokens")
        if self.max_minutes is not None:
            parts.append(f"{total.seconds / 60:.1f} of {self.max_minutes:g} minutes")
        return " and ".join(parts)


class Ledger:
    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> Spending:
        data = read_bytes(self._path)
        try:
            return msgspec.json.decode(data, type=Spending) if data else Spending()
        except msgspec.DecodeError as error:
            raise ConfigError(f"the ledger {self._path!r} cannot be read: {error}") from error

    def limit(
        self, usd: float | None = None, tokens: int | None = None, minutes: float | None = None
    ) -> None:
        with locked(self._path):
            self._write(self.read(), max_usd=usd, max_tokens=tokens, max_minutes=minutes)

    def reserve(self, who: str, amount: Amount, cancel: Cancel) -> None:
        """Wait until the amount fits. Raises LimitError when nothing is left."""
        while True:
            with locked(self._path):
                spending = self.read()
                if spending.is_used_up():
                    raise LimitError(f"the shared limit is used up: {spending.summary()}")
                if spending.has_room(who, amount):
                    self._write(spending, reserved={**spending.reserved, who: amount})
                    return
            cancel.sleep(LOOK_SECONDS)

    def book(self, who: str, name: str, spent: Amount) -> None:
        """Set the total spent by `name`, and remove the reservation of its process `who`."""
        with locked(self._path):
            spending = self.read()
            others = {key: held for key, held in spending.reserved.items() if key != who}
            self._write(spending, spent={**spending.spent, name: spent}, reserved=others)

    def book_time(self, spent: Mapping[str, Amount]) -> None:
        """Set the totals that these have spent so far during their work; reservations stay."""
        with locked(self._path):
            spending = self.read()
            self._write(spending, spent={**spending.spent, **spent})

    def release(self, alive: frozenset[str]) -> None:
        """Book reservations of processes that are gone as spent: the cost of an interrupted call is
        not known."""
        with locked(self._path):
            spending = self.read()
            gone = {key: held for key, held in spending.reserved.items() if key not in alive}
            if not gone:
                return
            now = time.time_ns()
            cut_off = {f"cut off {key} {now}": held for key, held in gone.items()}
            remaining = {key: held for key, held in spending.reserved.items() if key in alive}
            self._write(spending, spent={**spending.spent, **cut_off}, reserved=remaining)

    def _write(self, spending: Spending, **changes: object) -> None:
        changed = msgspec.structs.replace(spending, **changes)
        write_atomic(self._path, msgspec.json.encode(changed))


def process_name() -> str:
    return str(os.getpid())
