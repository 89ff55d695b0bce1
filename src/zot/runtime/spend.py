"""A guard that enforces a spending limit shared by several processes."""

from __future__ import annotations

from collections.abc import Callable

from zot.core.cost import usable, worst_cost
from zot.core.hook import ALLOW, Allow, Block, Hook, HookContext
from zot.errors import LimitError
from zot.ledger import Amount, Ledger, process_name
from zot.provider.types import Model


class SpendGuard(Hook):
    def __init__(self, ledger: Ledger, model: Callable[[], Model]) -> None:
        self._ledger = ledger
        self._model = model

    def before_turn(self, step: int, context: HookContext) -> Allow | Block:
        """Reserve the maximum cost of the call; the supervisor books the actual cost."""
        spending = self._ledger.read()
        if spending.is_used_up():
            return Block(f"the shared limit is used up: {spending.summary()}")
        if spending.max_usd is None and spending.max_tokens is None:
            return ALLOW
        model = self._model()
        price = usable(model.price)
        if spending.max_usd is not None and price is None:
            return Block(
                f"the shared limit of ${spending.max_usd:g} cannot be kept: the price of "
                f"{model.id!r} is not known; add it to models.json"
            )
        tokens = model.context_window + model.max_output
        usd = 0.0
        if price is not None:
            usd = worst_cost(price, model.context_window, model.max_output)
        try:
            amount = Amount(usd, tokens)
            self._ledger.reserve(process_name(), amount, context.cancel)
        except LimitError as error:
            return Block(str(error))
        return ALLOW
