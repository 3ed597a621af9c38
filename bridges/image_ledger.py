"""Which images an engine holds, as far as its answers tell, and request bodies built from that."""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from bridges.engine import ImageBytes, ImageMissing

_PNG = b"\x89PNG\r\n\x1a\n"


class ImageLedger:
    """Uuids an engine took with payload, least recently used first.

    The engine keeps its images in a cache of bounded size and drops the least recently used one; so does this
    ledger, a little earlier when ``capacity`` is chosen below the engine's. Being wrong costs one retry.

    :param capacity: images the engine's cache holds
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        self._capacity = capacity
        self._held: OrderedDict[str, None] = OrderedDict()
        self.evicted = 0

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._held

    def __len__(self) -> int:
        return len(self._held)

    def sent(self, uuids: Iterable[str]) -> None:
        """These were part of a request that the engine accepted, in this order."""
        for uuid in uuids:
            self._held[uuid] = None
            self._held.move_to_end(uuid)
        while len(self._held) > self._capacity:
            self._held.popitem(last=False)
            self.evicted += 1

    def forget(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self._held.pop(uuid, None)

    def clear(self) -> None:
        """Another engine instance: it holds nothing."""
        self._held.clear()


@dataclass(frozen=True, slots=True)
class Rendered:
    """Messages ready for the body.

    :param uuids: every image with a uuid, in prompt order
    :param nulls: how many of them were left without payload
    """

    messages: list[Mapping[str, Any]]
    uuids: tuple[str, ...]
    nulls: int


def render(
    messages: Sequence[Mapping[str, Any]],
    images: ImageBytes,
    held: ImageLedger | None,
    *,
    with_uuid: bool = True,
) -> Rendered:
    """Fill in the images of ``messages``.

    :param held: images to leave without payload; ``None``: every image carries its payload
    :param with_uuid: False drops the uuids, for engines that know no uuid parts
    :raises ImageMissing: a payload is needed and its bytes are gone
    """
    out: list[Mapping[str, Any]] = []
    uuids: list[str] = []
    nulls = 0
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) or not content:
            out.append(message)
            continue
        parts: list[Mapping[str, Any]] = []
        for part in content:
            uuid = part.get("uuid") if part.get("type") == "image_url" else None
            if uuid is None or part.get("image_url") is not None:
                parts.append(part)
                continue
            uuids.append(uuid)
            if held is not None and uuid in held:
                nulls += 1
                parts.append({"type": "image_url", "image_url": None, "uuid": uuid})
                continue
            filled: dict[str, Any] = {
                "type": "image_url",
                "image_url": {"url": data_url(bytes_of(uuid, images))},
            }
            if with_uuid:
                filled["uuid"] = uuid
            parts.append(filled)
        out.append({**message, "content": parts})
    return Rendered(out, tuple(uuids), nulls)


def bytes_of(uuid: str, images: ImageBytes) -> bytes:
    """:raises ImageMissing: nobody has them any more"""
    try:
        return images(uuid)
    except KeyError as gone:
        raise ImageMissing(f"the bytes of frame {uuid} are gone", uuid) from gone


def data_url(data: bytes) -> orjson.Fragment:
    """An encoded JPEG or PNG as JSON text."""
    kind = b"png" if data.startswith(_PNG) else b"jpeg"
    # A fragment goes into the body as it is: base64 needs no escaping, and frames are most of the bytes.
    return orjson.Fragment(b'"data:image/' + kind + b";base64," + base64.b64encode(data) + b'"')


def least_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """A lower bound of the prompt's tokens that no tokenizer goes below on real text.

    Sixteen bytes of text a token and four tokens an image: an engine that counts less lost the prompt.
    """
    size = images = 0
    for message in messages:
        content = message.get("content") or ()
        if isinstance(content, str):
            size += len(content)
            continue
        for part in content:
            if part.get("type") == "text":
                size += len(part["text"])
            else:
                images += 1
    return size // 16 + images * 4 + len(messages)
