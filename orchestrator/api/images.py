"""From an image URL to encoded bytes. ``data:`` URLs are decoded here, others go to the fetcher, if any."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Awaitable, Callable

from orchestrator.wire.errors import InvalidRequest, TooLarge

FetchImage = Callable[[str], Awaitable[bytes]]
"""Fetch an http(s) image within the operator's allow-list; raises ``VigilError``."""

_DATA_URL = re.compile(r"data:([\w.+/-]{0,100})((?:;[\w.+-]+=[\w.+-]+){0,4});base64,", re.I)


async def image_bytes(url: str, limit: int, fetch: FetchImage | None, param: str) -> bytes:
    """The encoded image.

    :param limit: largest encoded size in bytes
    :param fetch: ``None`` where the operator admits no hosts
    """
    if url[:5].lower() == "data:":
        return decode_data_url(url, limit, param)
    if fetch is None or not url.lower().startswith(("http://", "https://")):
        raise InvalidRequest(
            "send images as data: URLs; other URLs are fetched only from hosts that the operator admits",
            code="image_url_refused",
            param=param,
        )
    return await fetch(url)


def decode_data_url(url: str, limit: int, param: str) -> bytes:
    """:raises InvalidRequest: no base64 ``data:`` URL of an image, or one of more than ``limit`` bytes"""
    if url[:5].lower() != "data:":
        raise InvalidRequest("send images as data: URLs", code="image_url_refused", param=param)
    match = _DATA_URL.match(url)
    if match is None:
        raise InvalidRequest(
            "a data: URL is written data:image/jpeg;base64,...", code="invalid_image", param=param
        )
    if match[1] and not match[1].lower().startswith("image/"):
        raise InvalidRequest(f"{match[1]} is no image type", code="invalid_image", param=param)
    payload = url[match.end() :]
    if len(payload) > limit // 3 * 4 + 1024:
        raise _too_large(limit, param)
    try:
        data = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("the image is no valid base64", code="invalid_image", param=param) from None
    if not data:
        raise InvalidRequest("the image is empty", code="invalid_image", param=param)
    if len(data) > limit:
        raise _too_large(limit, param)
    return data


def _too_large(limit: int, param: str) -> TooLarge:
    return TooLarge(f"one frame may have {limit} bytes; scale it down", code="frame_too_large", param=param)
