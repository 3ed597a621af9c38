"""Prompts as token ids, grown message by message as their window grows. The engine makes every id.

A window's first prompt is the engine's own, told with a chat answer. What each later message adds is asked of
the engine as what it adds to a short conversation whose ids are known, with a text in the place of every
picture; the same words are asked for once. Nothing here waits or sends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from bridges.token_route import Piece, TokenRoute, collapsed

Message = Mapping[str, Any]
Tokenize = Callable[[Mapping[str, Any]], Awaitable[list[int]]]
"""The ids of a body of the engine's ``/tokenize``."""

WINDOWS = 2048
TEXTS = 8192


class Mismatch(Exception):
    """Ids that are not what they must be. The message says which."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages and their ids: ``pieces`` around ``images``, of which there is one fewer."""

    messages: tuple[Message, ...]
    pieces: tuple[Piece, ...]
    images: tuple[str, ...]


@dataclass(slots=True)
class Window:
    """:param lengths: tokens of pictures, as far as they are known"""

    units: list[Unit] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """:param lengths: tokens of each picture; 0 where nobody knows yet"""

    pieces: tuple[Piece, ...]
    images: tuple[str, ...]
    lengths: tuple[int, ...]

    @property
    def least(self) -> int:
        """Tokens that the engine must count, at least; exactly, where every picture's length is known."""
        return sum(piece.tokens for piece in self.pieces) + sum(length or 2 for length in self.lengths)

    @property
    def exact(self) -> bool:
        return all(self.lengths)


class TokenPrompts:
    """Keeps the windows of an engine's sessions, least recently used first.

    :param windows: kept at most; :param texts: whose ids are kept at most
    """

    def __init__(self, route: TokenRoute, windows: int = WINDOWS, texts: int = TEXTS) -> None:
        self.route = route
        self._most = windows
        self._windows: OrderedDict[str, Window] = OrderedDict()
        self._texts: OrderedDict[str, tuple[Piece, ...]] = OrderedDict()
        self._most_texts = texts

    def __len__(self) -> int:
        return len(self._windows)

    def knows(self, window: str, messages: Sequence[Message]) -> bool:
        """Whether a prompt of these messages can be grown from one that is known."""
        known = self._windows.get(window)
        return known is not None and _common(known.units, messages) > 0

    async def prompt(
        self, window: str, messages: Sequence[Message], params: Mapping[str, Any], tokenize: Tokenize
    ) -> TokenPrompt:
        """The prompt of a chat request; ``knows`` must have said yes.

        :raises Mismatch: the engine's ids don't add up
        """
        known = self._windows[window]
        self._windows.move_to_end(window)
        units, count = list(known.units), _common(known.units, messages)
        del units[count:]
        at = sum(len(unit.messages) for unit in units)
        tail: tuple[Piece, ...] = ()
        messages = list(messages)
        if params.get("continue_final_message"):
            tail = await self._adds(messages.pop(), tokenize, open_end=True)
        for message in messages[at:]:
            pieces = await self._adds(message, tokenize)
            units.append(Unit((message,), pieces, images_of((message,))))
        if not tail and params.get("add_generation_prompt", True):
            tail = await self._adds(None, tokenize)
        known.units = units
        pieces, images = _summed(units, tail)
        return TokenPrompt(pieces, images, tuple(known.lengths.get(uuid, 0) for uuid in images))

    async def begin(
        self,
        window: str,
        messages: Sequence[Message],
        params: Mapping[str, Any],
        ids: Sequence[int],
        tokenize: Tokenize,
    ) -> None:
        """A chat answer told the ids of its prompt: the window goes on from them.

        :raises Mismatch: they are not what the messages can have
        """
        pieces, lengths = collapsed(ids, self.route.pad)
        images = images_of(messages)
        if len(images) != len(lengths):
            raise Mismatch(f"{len(images)} pictures, {len(lengths)} runs of pads")
        if params.get("add_generation_prompt", True):
            (opening,) = await self._adds(None, tokenize)
            last = pieces[-1]
            if not (b"," + last.ids).endswith(b"," + opening.ids):
                raise Mismatch("the prompt does not end with what opens an answer")
            left = last.ids[: -len(opening.ids)].removesuffix(b",")
            pieces = (*pieces[:-1], Piece(left, last.tokens - opening.tokens))
        window_ = Window([Unit(tuple(messages), pieces, images)], dict(zip(images, lengths, strict=True)))
        self._windows[window] = window_
        self._windows.move_to_end(window)
        while len(self._windows) > self._most:
            self._windows.popitem(last=False)

    def counted(self, window: str, prompt: TokenPrompt, tokens: int) -> None:
        """The engine counted the tokens of this prompt: a single unknown picture's length follows.

        :raises Mismatch: it can't be this prompt
        """
        if tokens < prompt.least or (prompt.exact and tokens != prompt.least):
            raise Mismatch(f"the engine counted {tokens} tokens, {prompt.least} were to be")
        unknown = [uuid for uuid, length in zip(prompt.images, prompt.lengths, strict=True) if not length]
        if len(unknown) == 1:
            self.measured(window, {unknown[0]: tokens - prompt.least + 2})

    def measured(self, window: str, lengths: Mapping[str, int]) -> None:
        """How many tokens pictures have."""
        if (known := self._windows.get(window)) is not None:
            known.lengths.update(lengths)

    def forget(self, window: str) -> None:
        self._windows.pop(window, None)

    async def _adds(
        self, message: Message | None, tokenize: Tokenize, *, open_end: bool = False
    ) -> tuple[Piece, ...]:
        """The ids that a message adds; ``None``: what opens an answer. ``open_end``: it is continued."""
        route = self.route
        after_user = message is None or message["role"] == "assistant"
        before = route.asked if after_user else route.answered
        said = [] if message is None else [{**message, "content": self._spelled(message)}]
        key = orjson.dumps([open_end, said]).decode()  # its bytes would lie in a buffer of kilobytes
        if (known := self._texts.get(key)) is not None:
            self._texts.move_to_end(key)
            return known
        body = {
            "messages": [*before.messages, *said],
            "add_generation_prompt": message is None,
            "continue_final_message": open_end,
        }
        ids = await tokenize(body)
        if tuple(ids[: len(before.ids)]) != before.ids:
            raise Mismatch("a conversation that grows does not begin with the ids it had")
        pieces, lengths = collapsed(ids[len(before.ids) :], route.pad)
        images = 0 if message is None else len(images_of((message,)))
        if lengths != (1,) * images:
            raise Mismatch(f"{images} pictures, pads {list(lengths)}")
        self._texts[key] = pieces
        while len(self._texts) > self._most_texts:
            self._texts.popitem(last=False)
        return pieces

    def _spelled(self, message: Message) -> Any:
        content = message["content"]
        if isinstance(content, str):
            return content
        texts = [part["text"] if part["type"] == "text" else self.route.image_text for part in content]
        return [{"type": "text", "text": "".join(texts)}]


def _common(units: Sequence[Unit], messages: Sequence[Message]) -> int:
    """How many units the messages begin with."""
    at = 0
    for count, unit in enumerate(units):
        if tuple(messages[at : at + len(unit.messages)]) != unit.messages:
            return count
        at += len(unit.messages)
    return len(units)


def images_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """Uuids of the pictures in messages, in order."""
    return tuple(
        part["uuid"]
        for message in messages
        if not isinstance(message["content"], str)
        for part in message["content"]
        if part["type"] == "image_url"
    )


def _summed(units: Sequence[Unit], tail: tuple[Piece, ...]) -> tuple[tuple[Piece, ...], tuple[str, ...]]:
    """All pieces in order: where one unit ends and the next begins, two become one."""
    pieces: list[Piece] = []
    images: list[str] = []
    open_ids: list[bytes] = []
    open_tokens = 0
    for own in (*(unit.pieces for unit in units), tail):
        for index, piece in enumerate(own):
            if index:
                pieces.append(Piece(b",".join(open_ids), open_tokens))
                open_ids, open_tokens = [], 0
            if piece.tokens:
                open_ids.append(piece.ids)
                open_tokens += piece.tokens
    pieces.append(Piece(b",".join(open_ids), open_tokens))
    for unit in units:
        images += unit.images
    return tuple(pieces), tuple(images)
