"""The summarizer that the settings name."""

from __future__ import annotations

from bridges.summarizer import ChatSummarizer
from orchestrator.settings import Settings


def summarizer_of(settings: Settings) -> ChatSummarizer | None:
    """One for all sessions; ``None``: the engine writes its own summaries."""
    named = settings.summarizer
    if named.url is None or named.model is None:
        return None
    return ChatSummarizer(
        named.url,
        named.model,
        named.params,
        api_key=named.api_key.get_secret_value() if named.api_key else None,
        images=named.images,
        deadline_s=named.deadline_s,
        max_in_flight=named.max_in_flight,
    )
