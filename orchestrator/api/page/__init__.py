"""The web page's files, read once when the service starts. What is not in this folder cannot be asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class PageFile:
    """:param etag: of the bytes, quoted as the header wants it"""

    data: bytes
    media_type: str
    etag: str


def page_files() -> dict[str, PageFile]:
    """By name. The folder is flat, so a name with a slash is none of them."""
    found = {}
    for entry in files(__name__).iterdir():
        media_type = TYPES.get("." + entry.name.rpartition(".")[2])
        if media_type is not None and entry.is_file():
            data = entry.read_bytes()
            found[entry.name] = PageFile(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
    return found
