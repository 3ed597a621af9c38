"""``GET /``: the web page, and its files under ``/page/``.

The files are public, as ``/health`` is: they hold nothing secret, and a browser cannot send a key with the
address of a page. Whatever the page does afterwards goes through the same door as everybody's requests.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import Response

from orchestrator.api.errors import error_response
from orchestrator.api.page import INDEX, page_files
from orchestrator.wire.errors import NotFound

router = APIRouter(include_in_schema=False)

HEADERS: Mapping[str, str] = {
    # Nothing inline, nothing from elsewhere. ``blob:`` is what the user chose to show, and nothing else.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' blob: data:; media-src 'self' blob:; worker-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "permissions-policy": (
        "camera=(self), microphone=(self), display-capture=(self), geolocation=(), payment=(), usb=(), "
        "serial=(), midi=(), hid=()"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # A new version of Vigil is seen at once; an unchanged file costs no more than a 304.
    "cache-control": "no-cache",
}

_FILES = page_files()


@router.api_route("/", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """The web page."""
    return _answer(request, INDEX)


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def page_file(request: Request, name: str) -> Response:
    """One of its files."""
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    found = _FILES.get(name)
    if found is None:
        return error_response(NotFound("the page has no such file", code="not_found"))
    headers = {**HEADERS, "etag": found.etag}
    if _has(request.headers.get("if-none-match", ""), found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.data, headers=headers, media_type=found.media_type)


def _has(given: str, etag: str) -> bool:
    """Whether an ``If-None-Match`` lists the tag; proxies that compress make it a weak one."""
    known = {each.strip().removeprefix("W/") for each in given.split(",")}
    return etag in known or "*" in known
