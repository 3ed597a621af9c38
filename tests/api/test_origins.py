"""Which pages may talk to the service, and under which names a service without keys answers."""

from __future__ import annotations

import pytest

from orchestrator.api.origins import check_local, check_origin, is_loopback, is_origin
from orchestrator.wire.errors import Forbidden


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "vigil.example", ()),  # a program
        ("https://vigil.example", "vigil.example", ()),  # its own page, TLS ended by a proxy
        ("http://vigil.example", "vigil.example", ()),
        ("http://127.0.0.1:8070", "127.0.0.1:8070", ()),
        ("http://[::1]:8070", "[::1]:8070", ()),
        ("https://vigil.example", "vigil.example:443", ()),
        ("https://app.example", "vigil.example", ("https://app.example",)),
        ("https://any.example", "vigil.example", ("*",)),
    ],
)
def test_pages_that_may(origin: str | None, host: str, allowed: tuple[str, ...]) -> None:
    check_origin(origin, host, allowed)


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("https://evil.example", "vigil.example", ()),
        ("null", "vigil.example", ()),
        ("null", "null", ()),
        ("", "", ()),
        ("file://", "", ()),
        ("http://127.0.0.1:3000", "127.0.0.1:8070", ()),  # another program's page on this machine
        ("https://vigil.example.evil.example", "vigil.example", ()),
        ("https://app.example.evil.example", "vigil.example", ("https://app.example",)),
        ("http://app.example", "vigil.example", ("https://app.example",)),
        ("https://app.example:444", "vigil.example", ("https://app.example",)),
        ("http://x:99999", "x:99999", ()),
        ("http://x:port", "x:port", ()),
    ],
)
def test_pages_that_may_not(origin: str, host: str, allowed: tuple[str, ...]) -> None:
    with pytest.raises(Forbidden) as refused:
        check_origin(origin, host, allowed)
    assert (refused.value.code, refused.value.http_status) == ("origin_not_allowed", 403)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8070", "localhost:1", "[::1]:8070", "LOCALHOST"])
def test_names_of_this_machine(host: str) -> None:
    check_local(host)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "a@b", "[::1"],
)
def test_other_names(host: str) -> None:
    with pytest.raises(Forbidden) as refused:
        check_local(host)
    assert refused.value.code == "host_not_allowed"


@pytest.mark.parametrize("text", ["https://app.example", "http://127.0.0.1:3000", "chrome-extension://abc"])
def test_an_origin(text: str) -> None:
    assert is_origin(text)


@pytest.mark.parametrize(
    "text",
    ["app.example", "https://", "https://a/b", "https://a?b", "https://u@a", "https://A.example", "", "*"],
)
def test_no_origin(text: str) -> None:
    assert not is_origin(text)


def test_loopback_is_told_by_the_address() -> None:
    assert is_loopback("127.9.9.9")
    assert not is_loopback("127.0.0.1.example")
