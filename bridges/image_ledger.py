"""Which images an engine holds, as far as its answers tell, and request bodies built from that."""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from bridges.engine import ImageBytes, ImageMissing, Window, WrittenMessage

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

    def missing(self, uuids: Iterable[str]) -> set[str]:
        """Those of them that the engine does not hold."""
        return set(uuids).difference(self._held)

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

    :param messages: their JSON, a list
    :param uuids: every image with a uuid, in prompt order
    :param nulls: how many of them were left without payload
    :param least: a lower bound of the prompt's tokens: an engine that counts less lost the prompt
    """

    messages: orjson.Fragment
    uuids: tuple[str, ...]
    nulls: int
    least: int


def render(
    messages: Sequence[Mapping[str, Any]],
    images: ImageBytes,
    held: ImageLedger | None,
    *,
    with_uuid: bool = True,
    window: Window | None = None,
) -> Rendered:
    """Fill in the images of ``messages``.

    :param held: images to leave without payload; ``None``: every image carries its payload
    :param with_uuid: False drops the uuids, for engines that know no uuid parts
    :param window: knows what was written before, and learns the rest
    :raises ImageMissing: a payload is needed and its bytes are gone
    """
    written = _written(messages, window)
    least = sum([each.least for each in written]) // 16
    uuids = tuple(chain.from_iterable([each.uuids for each in written]))
    # Nearly all are held, of windows of hundreds: only messages with one that is not are written anew.
    missing = set(uuids) if held is None else held.missing(uuids)
    parts = [
        each.json
        if missing.isdisjoint(each.uuids)
        else _filled(each.message, images, missing, with_uuid=with_uuid)
        for each in written
    ]
    nulls = len(uuids) - sum(map(missing.__contains__, uuids))
    return Rendered(orjson.Fragment(b"[" + b",".join(parts) + b"]"), uuids, nulls, least)


def _written(messages: Sequence[Mapping[str, Any]], window: Window | None) -> Sequence[WrittenMessage]:
    """Every message as JSON; those that the window has are not written again."""
    known = window.written if window is not None else []
    same = 0
    for each, message in zip(known, messages, strict=False):
        if each.message is not message:
            break
        same += 1
    del known[same:]
    known.extend(map(_write, messages[same:]))
    return known


def _write(message: Mapping[str, Any]) -> WrittenMessage:
    """Sixteen bytes of text a token, four tokens an image, and one for the message."""
    content = message.get("content") or ()
    uuids: list[str] = []
    if isinstance(content, str):
        return WrittenMessage(message, _to_keep(message), (), len(content) + 16)
    least, parts = 16, list[Mapping[str, Any]]()
    for part in content:
        least += len(part["text"]) if part.get("type") == "text" else 4 * 16
        if (uuid := _uuid_of(part)) is not None:
            uuids.append(uuid)
            part = {"type": "image_url", "image_url": None, "uuid": uuid}
        parts.append(part)
    written = _to_keep({**message, "content": parts} if uuids else message)
    return WrittenMessage(message, written, tuple(uuids), least)


def _to_keep(message: Mapping[str, Any]) -> bytes:
    """JSON in as many bytes as it has: what orjson returns lies in a buffer of kilobytes, as long as it is
    held, and a window holds hundreds of these."""
    return bytes(memoryview(orjson.dumps(message)))


def _filled(message: Mapping[str, Any], images: ImageBytes, missing: Set[str], *, with_uuid: bool) -> bytes:
    parts: list[Mapping[str, Any]] = []
    for part in message["content"]:
        uuid = _uuid_of(part)
        if uuid is None:
            parts.append(part)
            continue
        if uuid not in missing:
            parts.append({"type": "image_url", "image_url": None, "uuid": uuid})
            continue
        filled: dict[str, Any] = {
            "type": "image_url",
            "image_url": {"url": data_url(bytes_of(uuid, images))},
        }
        if with_uuid:
            filled["uuid"] = uuid
        parts.append(filled)
    return orjson.dumps({**message, "content": parts})


def _uuid_of(part: Mapping[str, Any]) -> str | None:
    """Of an image whose bytes are to be filled in."""
    if part.get("type") != "image_url" or part.get("image_url") is not None:
        return None
    return part.get("uuid")


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
