"""The page's files: what they are sent as, what a browser may do with them, and that nothing else is sent."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from importlib.resources import files

import httpx
import pytest

from orchestrator.api import page
from orchestrator.api.page import TYPES, page_files
from tests.realtime.serving import Scripted


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with (
        Scripted(tenants={"vigil_key": "somebody"}) as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False) as client,
    ):
        yield client


def directives(response: httpx.Response) -> dict[str, list[str]]:
    policy = response.headers["content-security-policy"]
    return {name: sources for name, *sources in (part.split() for part in policy.split(";"))}


async def test_the_page_is_public_and_what_it_asks_for_is_not(client: httpx.AsyncClient) -> None:
    response = await client.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert (await client.get("/v1/models")).status_code == 401


@pytest.mark.parametrize("name", sorted(page_files()))
async def test_every_file_is_sent_as_what_it_is_with_all_headers(
    client: httpx.AsyncClient, name: str
) -> None:
    response = await client.get(f"/page/{name}")
    assert response.status_code == 200 and response.content == page_files()[name].data
    assert response.headers["content-type"] == TYPES["." + name.rpartition(".")[2]]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["cross-origin-opener-policy"] == "same-origin"
    policy = directives(response)
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == ["'none'"]
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == ["'self'"]
    allowed = {source for sources in policy.values() for source in sources}
    assert allowed <= {"'self'", "'none'", "blob:", "data:", "'script'"}, "nothing inline, no other host"


async def test_an_unchanged_file_costs_no_bytes(client: httpx.AsyncClient) -> None:
    first = await client.get("/page/main.js")
    assert first.headers["cache-control"] == "no-cache"
    for given in (first.headers["etag"], f'"other", W/{first.headers["etag"]}', "*"):
        again = await client.get("/page/main.js", headers={"if-none-match": given})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    assert (await client.get("/page/main.js", headers={"if-none-match": '"other"'})).status_code == 200
    head = await client.head("/page/main.js")
    assert head.content == b"" and head.headers["content-length"] == str(len(first.content))


@pytest.mark.parametrize(
    "path",
    [
        "/page/", "/page/nothing.js", "/page/__init__.py", "/page/../server.py", "/page/..%2fserver.py",
        "/page/%2e%2e/server.py", "/page/..%5cserver.py", "/page/%2fetc%2fpasswd", "/page//etc/passwd",
        "/page/main.js%00", "/page/main.js/", "/index.html",
    ],
)  # fmt: skip
async def test_nothing_else_is_sent(client: httpx.AsyncClient, path: str) -> None:
    sent = client.build_request("GET", "/")
    sent.url = sent.url.copy_with(raw_path=path.encode())  # as it stands, dots and all
    assert (await client.send(sent)).status_code == 404


async def test_the_page_is_read_and_never_written(client: httpx.AsyncClient) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert (await client.request(method, "/")).status_code == 405


def test_files_name_only_files_that_are_there_and_no_other_host() -> None:
    known = page_files()
    assert set(known) == {f.name for f in files(page).iterdir() if f.name[0] not in "_."}
    for name, file in known.items():
        text = file.data.decode()
        named = set(re.findall(r'"/page/([^"]+)"', text)) | set(re.findall(r'from "\./([^"]+)"', text))
        assert named <= set(known), name
        assert not re.search(r"\b(https?|wss?)://(?!www\.w3\.org/2000/svg)", text), name
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|\son\w+=\"|style=\"", text)
    assert not re.search(r"<(script|style)(?![^>]*\bsrc=)[^>]*>", known["index.html"].data.decode())
