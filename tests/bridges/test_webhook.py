"""The webhook's bridge over a real socket: what is sent, how it is signed, what each answer means."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import InvalidWebhookSignatureError, OpenAI

from bridges.webhook import Webhook, WebhookError, sign, signing_key
from orchestrator.runtime.clock import SystemClock
from tests.fakes.clock import settle
from tests.fakes.receiver import FakeReceiver

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
NOW = 1_700_000_000_000


@asynccontextmanager
async def webhook(url: str, wall_ms: Any = lambda: NOW, **more: Any) -> AsyncIterator[Webhook]:
    hook = Webhook(url, more.pop("secret", SECRET), wall_ms, **more)
    yield hook
    await hook.aclose()


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the Standard Webhooks specification's reference libraries."""
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("secret", [SECRET, "any other sixteen characters"])
async def test_a_public_client_verifies_what_is_sent(secret: str) -> None:
    now = SystemClock().wall_ms
    async with FakeReceiver() as receiver, webhook(receiver.url, now, secret=secret) as hook:
        await hook.post("duplex-1:7", b'{"kind":"tick_answered"}')
    (got,) = receiver.got
    assert got.headers["webhook-id"] == "duplex-1:7"
    assert got.headers["content-type"] == "application/json"
    client = OpenAI(api_key="none", webhook_secret=secret)
    client.webhooks.verify_signature(got.body, got.headers)
    with pytest.raises(InvalidWebhookSignatureError):
        client.webhooks.verify_signature(got.body + b" ", got.headers)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (500, "webhook_failed"),
        (503, "webhook_failed"),
        (429, "webhook_failed"),
        (408, "webhook_failed"),
        (400, "webhook_refused"),
        (401, "webhook_refused"),
        (410, "webhook_refused"),
        (302, "webhook_refused"),
    ],
)
async def test_what_an_answer_means(status: int, code: str) -> None:
    elsewhere = [("location", "http://127.0.0.1:9/")]
    async with FakeReceiver([status], elsewhere) as receiver, webhook(receiver.url) as hook:
        with pytest.raises(WebhookError) as raised:
            await hook.post("e", b"{}")
    assert raised.value.code == code
    assert raised.value.final is (code == "webhook_refused")
    assert len(receiver.got) == 1


@pytest.mark.parametrize(
    ("hint", "seconds"),
    [("7", 7.0), ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0), ("soon", None), ("-3", None), ("99999", 3600.0)],
)
async def test_a_receiver_may_say_when(hint: str, seconds: float | None) -> None:
    async with FakeReceiver([503], [("retry-after", hint)]) as receiver, webhook(receiver.url) as hook:
        with pytest.raises(WebhookError) as raised:
            await hook.post("e", b"{}")
    assert raised.value.retry_after_s == seconds


async def test_one_that_is_down_or_silent() -> None:
    async with webhook("http://127.0.0.1:9/") as hook:
        with pytest.raises(WebhookError) as raised:
            await hook.post("e", b"{}")
        assert raised.value.code == "webhook_unreachable"
    async with FakeReceiver([0]) as receiver, webhook(receiver.url, timeout_s=0.5) as hook:
        with pytest.raises(WebhookError) as raised:
            await hook.post("e", b"{}")
        assert raised.value.code == "webhook_timeout"


async def test_deliveries_at_a_time_are_bounded_and_waiting_is_no_fault() -> None:
    async with FakeReceiver([0, 200]) as receiver, webhook(receiver.url, max_connections=1) as hook:
        held = asyncio.create_task(hook.post("a", b"{}"))
        await receiver.until(lambda: len(receiver.got) == 1)
        waiting = asyncio.create_task(hook.post("b", b"{}"))
        await settle()
        assert not waiting.done() and len(receiver.got) == 1
        held.cancel()
        await waiting
    assert [got.headers["webhook-id"] for got in receiver.taken] == ["b"]


def test_a_secret_that_is_no_base64() -> None:
    with pytest.raises(ValueError, match="no base64"):
        signing_key("whsec_!!")
