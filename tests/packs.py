"""Prompt packs as somebody might edit them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from prompts.loader import pack_of
from prompts.pack import Pack


def edited(pack: Pack, edit: Callable[[dict[str, str], dict[str, Any]], None]) -> Pack:
    """The pack after ``edit`` has changed its files (name to text) and the tables of its ``model.toml``."""
    whole = json.loads(pack.source)
    edit(whole["files"], whole["model"])
    return pack_of(json.dumps(whole, sort_keys=True, ensure_ascii=False))


def reworded(pack: Pack) -> Pack:
    """Other words everywhere: personas, headers, time tags, notes."""

    def edit(files: dict[str, str], model: dict[str, Any]) -> None:
        for name, text in files.items():
            if name.startswith("persona_"):
                files[name] = text + "\nKeep an eye on the edges."
            if name.startswith("phrases."):
                text = text.replace("{seconds} seconds>", "{seconds} s>").replace(
                    "[User Query", "[User's Query"
                )
                files[name] = text.replace("[Video History]", "[Earlier Video]")

    return edited(pack, edit)


def resized(pack: Pack) -> Pack:
    """Smaller pictures, a longer reply, shorter chunks."""

    def edit(files: dict[str, str], model: dict[str, Any]) -> None:
        model["pixels"]["max"] //= 4
        model["pixels"]["min"] = min(model["pixels"]["min"], model["pixels"]["max"])
        model["sampling"]["decide"]["max_tokens"] *= 2
        model["memory"]["summary_target_tokens"] //= 2

    return edited(pack, edit)
