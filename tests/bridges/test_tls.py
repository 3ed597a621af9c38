"""Certificates are read once per process."""

import ssl

import pytest

from bridges.engine_metrics import EngineMetrics
from bridges.text_engine import TextEngine
from bridges.tls import trusted


async def test_the_clients_of_an_added_engine_read_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract: all sessions would wait for that."""
    assert trusted().verify_mode is ssl.CERT_REQUIRED and trusted().check_hostname

    def read(*_: object, **__: object) -> ssl.SSLContext:
        raise AssertionError("certificates are read again")

    monkeypatch.setattr(ssl, "create_default_context", read)
    for made in (TextEngine("http://127.0.0.1:1"), EngineMetrics("http://127.0.0.1:1")):
        await made.aclose()
