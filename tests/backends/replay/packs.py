"""The packs and grammars that the tests of this room use."""

from __future__ import annotations

from orchestrator.backends.replay.tags import Grammar
from prompts.loader import load_pack

JOYVL = load_pack("joyvl")
GRAMMAR = Grammar(JOYVL.tags, JOYVL.control_tokens)
GENERIC = load_pack("generic")
