"""The command that all is about. It stands apart from the others, as the first prompt does not wait
for them to be loaded.
"""

from typing import Annotated, final

from msgspec import Meta

from zot.text import Frozen
from zot.wire.first import Command

Whole = Annotated[int, Meta(gt=0)]
Amount = Annotated[float, Meta(gt=0)]


class ImageData(Frozen):
    mime_type: str
    data: bytes
    """Base64 on the wire."""


class LimitsData(Frozen):
    """What each prompt may use up, where it does not say itself."""

    max_steps: Whole | None = None
    max_cost: Amount | None = None
    """US dollars."""
    max_tokens: Whole | None = None
    max_seconds: Amount | None = None


@final
class Prompt(Command, LimitsData, tag="prompt"):
    message: str = ""
    images: tuple[ImageData, ...] | None = None
    run: str = ""
    """With --durable: the client's own name for the run. The same one again is not run twice."""
