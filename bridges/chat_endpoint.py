"""What is the same for every OpenAI-compatible chat endpoint that is not the session's own engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CHAT_ROUTE = "/chat/completions"
_THOUGHTS = re.compile(r"^.*</think>", re.DOTALL)


def split_url(url: str) -> tuple[str, str]:
    """Root and chat route of an endpoint.

    :param url: its root (with or without ``/v1``), or its whole chat route, which then ends in
        ``/chat/completions`` and need not be below ``/v1``
    """
    root = url.rstrip("/").removesuffix(_CHAT_ROUTE)
    named_whole = root != url.rstrip("/") and not root.endswith("/v1")
    return root, _CHAT_ROUTE if named_whole else f"/v1{_CHAT_ROUTE}"


def text_of(reply: Mapping[str, Any]) -> str:
    """The text of a chat completion, without thoughts that a server left in it; empty if it has none.

    :raises ValueError: the reply is no chat completion
    """
    try:
        content = reply["choices"][0]["message"]["content"]
    except (LookupError, TypeError):
        raise ValueError("the reply is no chat completion") from None
    return _THOUGHTS.sub("", content).strip() if isinstance(content, str) else ""
