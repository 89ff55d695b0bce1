"""The one check of images that come with a message, whatever door they came through."""

from __future__ import annotations

from collections.abc import Sequence

from zot.errors import CommandError
from zot.provider.types import Image, image_type

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def check_images(images: Sequence[Image]) -> None:
    """Raises CommandError for one of a type no model takes, empty, or not what it says it is: a
    provider would refuse that, and every later request with it.
    """
    for position, image in enumerate(images):
        where = f"invalid_params: images[{position}]"
        if image.mime_type not in IMAGE_TYPES:
            known = ", ".join(IMAGE_TYPES)
            raise CommandError(f"{where}.mime_type must be one of {known}, not {image.mime_type!r}")
        if not image.data:
            raise CommandError(f"{where}.data is empty")
        seen = image_type(image.data[:16])
        if seen != image.mime_type:
            like = f"looks like {seen}" if seen else "is no image that models take"
            raise CommandError(f"{where}.data {like}, not {image.mime_type}")
