"""Fetching images by URL without becoming a way into the operator's network.

Only hosts on a list are asked. A name is resolved once, every address must be public (or be on the list
itself), and the connection goes to that very address, so that a second answer of the name server can't
lead elsewhere. Redirects stay on the host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection

import httpx

from bridges.tls import trusted

_PORTS = {"http": 80, "https": 443}
_REDIRECTS = 3

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Addresses of a host, as text; raises ``OSError``."""


class FetchError(Exception):
    """``code``: ``image_url_refused``, ``image_too_large`` or ``image_unavailable``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class ImageFetcher:
    """
    :param allowed: ``host``, ``host:port``, or an address; without a port only 80 and 443 are asked
    :param limit: largest image in bytes
    :param timeout_s: for one image, redirects included
    """

    def __init__(
        self, allowed: Collection[str], *, limit: int, timeout_s: float, resolve: Resolve = resolve
    ) -> None:
        self._allowed = frozenset(host.lower() for host in allowed)
        self._limit = limit
        self._timeout_s = timeout_s
        self._resolve = resolve
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(timeout_s),
            trust_env=False,
            verify=trusted(),
            limits=httpx.Limits(max_connections=16),
        )

    async def fetch(self, url: str) -> bytes:
        """:raises FetchError:"""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._fetch(url)
        except TimeoutError:
            raise FetchError(
                "image_unavailable", f"the image did not come within {self._timeout_s:g} s"
            ) from None
        except (httpx.HTTPError, OSError) as broken:
            raise FetchError("image_unavailable", f"the image can't be fetched: {broken}") from broken

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _fetch(self, url: str) -> bytes:
        target = self._checked(url)
        for _ in range(_REDIRECTS + 1):
            async with self._http.stream(
                "GET",
                target.copy_with(host=await self._address(target)),
                headers={
                    "host": target.netloc.decode("ascii"),
                    "accept": "image/*",
                    "accept-encoding": "identity",
                },
                extensions={"sni_hostname": target.host},
            ) as response:
                if not response.has_redirect_location:
                    return await self._body(response)
                onward = self._checked(str(target.join(response.headers["location"])))
            if onward.host != target.host:
                raise FetchError("image_url_refused", "the image's host redirects to another one")
            target = onward
        raise FetchError("image_unavailable", "the image's host redirects too often")

    def _checked(self, url: str) -> httpx.URL:
        try:
            target = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            raise FetchError("image_url_refused", "the image's URL can't be read") from None
        port = target.port or _PORTS.get(target.scheme)
        host = target.host.lower()
        if target.scheme not in _PORTS or not host or target.userinfo:
            raise FetchError("image_url_refused", "only http and https URLs without a user name are fetched")
        if not self._lists(host, port):
            raise FetchError(
                "image_url_refused", f"{host} is not among the hosts that images are fetched from"
            )
        return target

    async def _address(self, target: httpx.URL) -> str:
        port = target.port or _PORTS[target.scheme]
        addresses = await self._resolve(target.host, port)
        for address in addresses:
            if not _is_public(address) and not self._lists(address, port):
                raise FetchError(
                    "image_url_refused",
                    f"{target.host} is an address of a private network: put it on the list",
                )
        if not addresses:
            raise FetchError("image_unavailable", f"{target.host} has no address")
        return addresses[0]

    def _lists(self, host: str, port: int | None) -> bool:
        return (host in self._allowed and port in _PORTS.values()) or f"{host}:{port}" in self._allowed

    async def _body(self, response: httpx.Response) -> bytes:
        if response.status_code != 200:
            raise FetchError("image_unavailable", f"the image's host answered {response.status_code}")
        kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
        if not kind.startswith("image/"):
            raise FetchError("image_unavailable", f"the URL is no image but {kind or 'of no type'}")
        data = bytearray()
        async for chunk in response.aiter_raw(64 * 1024):
            data += chunk
            if len(data) > self._limit:
                raise FetchError("image_too_large", f"an image may have {self._limit} bytes")
        return bytes(data)


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_global and not parsed.is_multicast
