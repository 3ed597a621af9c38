"""Keys that go out in an HTTP header: anything but plain ASCII would fail at the first request."""

from __future__ import annotations

import typer

RULE = "a key is one line of plain ASCII"


def is_plain(key: str) -> bool:
    return key.isascii() and key.isprintable()


def checked_option(key: str | None) -> str | None:
    """Callback of an option that takes a key."""
    if key is not None and not is_plain(key):
        raise typer.BadParameter(RULE)
    return key
