"""Image URLs are fetched from listed hosts alone, and never lead into the operator's network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from bridges.image_fetch import FetchError, ImageFetcher

PICTURE = b"\xff\xd8\xff" + b"x" * 100


@asynccontextmanager
async def host(answer: Callable[[str], bytes]) -> AsyncIterator[int]:
    """A host that answers raw bytes by path; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(request.split()[1].decode()))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def reply(body: bytes = PICTURE, status: str = "200 OK", **headers: str) -> bytes:
    fields = {"content-type": "image/jpeg", "content-length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def to(address: str) -> Callable[[str, int], object]:
    async def resolve(name: str, port: int) -> list[str]:
        return [address]

    return resolve


def fetcher(
    *allowed: str, address: str = "127.0.0.1", limit: int = 1000, timeout_s: float = 5
) -> ImageFetcher:
    return ImageFetcher(allowed, limit=limit, timeout_s=timeout_s, resolve=to(address))  # type: ignore[arg-type]


async def refused(images: ImageFetcher, url: str) -> str:
    with pytest.raises(FetchError) as error:
        await images.fetch(url)
    await images.aclose()
    return error.value.code


async def test_a_listed_host_is_asked_by_its_name_at_its_address() -> None:
    async with host(lambda path: reply()) as port:
        images = fetcher(f"camera.example:{port}", "127.0.0.1")
        # An address without a port admits it for 80 and 443 only.
        with pytest.raises(FetchError, match="private network"):
            await images.fetch(f"http://camera.example:{port}/now.jpg")
        await images.aclose()
        images = fetcher(f"camera.example:{port}", f"127.0.0.1:{port}")
        assert await images.fetch(f"http://camera.example:{port}/now.jpg") == PICTURE
        await images.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "http://other.example/a.jpg",
        "http://good.example.evil.example/a.jpg",
        "http://good.example:8080/a.jpg",
        "http://good.example@evil.example/a.jpg",
        "http://user:secret@good.example/a.jpg",
        "ftp://good.example/a.jpg",
        "file:///etc/passwd",
        "http://",
        "http://[::1/a.jpg",
        "//good.example/a.jpg",
    ],
)
async def test_other_urls_are_refused(url: str) -> None:
    assert await refused(fetcher("good.example"), url) == "image_url_refused"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:10.0.0.1",
    ],
)
async def test_a_listed_name_of_a_private_address_is_refused(address: str) -> None:
    assert (
        await refused(fetcher("good.example", address=address), "http://good.example/a.jpg")
        == "image_url_refused"
    )


async def test_redirects_stay_on_the_host() -> None:
    def answer(path: str) -> bytes:
        if path == "/moved":
            return reply(b"", "302 Found", location="/here")
        if path == "/away":
            return reply(b"", "302 Found", location="http://169.254.169.254/latest")
        if path == "/round":
            return reply(b"", "302 Found", location="/round")
        return reply()

    async with host(answer) as port:
        images = fetcher(f"a.example:{port}", f"127.0.0.1:{port}", "169.254.169.254")
        assert await images.fetch(f"http://a.example:{port}/moved") == PICTURE
        for path, code in (("/away", "image_url_refused"), ("/round", "image_unavailable")):
            with pytest.raises(FetchError) as error:
                await images.fetch(f"http://a.example:{port}{path}")
            assert error.value.code == code
        await images.aclose()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (reply(b"x" * 2000), "image_too_large"),
        (reply(status="404 Not Found"), "image_unavailable"),
        (reply(content_type="text/html"), "image_unavailable"),
        (b"nonsense", "image_unavailable"),
        (b"", "image_unavailable"),
    ],
)
async def test_answers_that_are_no_picture(answer: bytes, code: str) -> None:
    answer = answer.replace(b"content-type: image/jpeg\r\n", b"") if b"text/html" in answer else answer
    async with host(lambda path: answer) as port:
        images = fetcher(f"a.example:{port}", f"127.0.0.1:{port}")
        assert await refused(images, f"http://a.example:{port}/") == code


async def test_a_host_that_does_not_answer_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    images = fetcher(f"a.example:{port}", f"127.0.0.1:{port}", timeout_s=0.1)
    assert await refused(images, f"http://a.example:{port}/") == "image_unavailable"
    server.close()
