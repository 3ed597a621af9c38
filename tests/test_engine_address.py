"""An engine's address names it everywhere: it is one, holds no secret, and no engine is there twice."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import orchestrator.engine_address
from orchestrator.engine_address import checked, twin
from orchestrator.settings import Settings

ENGINE = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@gpu-1:8000",
        "http://gpu-1:8000?key=secret",
        "http://gpu-1:8000#a",
        "http://gpu-1:99999",
        "http://gpu-1:0",
        "http://gpu-1:x",
        "http://[",
        "http://",
        "http://:8000",
        "ftp://gpu-1",
        "http://gpu-1:8000,http://gpu-2:8000",
        "http://gpu 1:8000",
    ],
)
def test_what_is_no_address_is_told_without_its_secret(url: str) -> None:
    with pytest.raises(ValueError, match="written as http://host:port") as told:
        checked(url)
    assert "user:secret" not in str(told.value)
    if "," not in url:
        with pytest.raises(ValueError, match="http://host:port") as refused:
            Settings(engine=url)
        assert "user:secret@" not in str(refused.value).partition("[type=")[0]


def test_addresses_of_every_kind() -> None:
    for url in (ENGINE, "https://gw.example/engines/a", "http://[::1]:8000/v1", "ws://gpu-1:8091"):
        assert checked(url) == url
    assert Settings(engine=f"{ENGINE}, standin-cpu").engines == (ENGINE, "standin-cpu")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ENGINE, "http://localhost:8000", True),
        (ENGINE, "http://127.1:8000", True),
        (ENGINE, "http://[::ffff:127.0.0.1]:8000", True),
        (ENGINE, "http://127.0.0.1:8000/v1", True),
        (ENGINE, "ws://127.0.0.1:8000", True),
        (ENGINE, "http://127.0.0.1:8001", False),
        (ENGINE, "http://127.0.0.2:8000", False),
        ("http://10.0.0.5:8000", "http://gpu-1:8000", True),
        ("http://gpu-1:8000", "http://GPU-1:8000", True),
        ("http://gpu-1", "http://gpu-1:80", True),
        ("http://gpu-1:443", "https://gpu-1", True),
        ("http://gpu-1:8000", "http://gpu-2:8000", False),
        ("http://nowhere:8000", "http://127.0.0.1:8000", False),
    ],
)
def test_one_engine_under_two_names(
    one: str, other: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hosts' names with one address may be two engines behind a proxy."""
    asks = socket.getaddrinfo

    def resolver(host: str, port: int, **more: Any) -> Any:
        if host in ("gpu-1", "gpu-2"):
            host = "10.0.0.5"
        if host == "nowhere":
            raise socket.gaierror
        return asks(host, port, **more)

    monkeypatch.setattr(orchestrator.engine_address.socket, "getaddrinfo", resolver)
    assert (twin(one, ["http://9.9.9.9:1", other]) == other) is same
    assert (twin(other, [one]) == one) is same
