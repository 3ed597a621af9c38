"""The OpenAI SDK's realtime client against the running server; it acknowledges nothing."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import BaseModel

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Script, Seen
from tests.fakes.pictures import jpeg
from tests.realtime import strictly
from tests.realtime.serving import eventually

CLASSES: dict[str, type[BaseModel]] = {
    get_args(each.model_fields["type"].annotation)[0]: each
    for each in get_args(get_args(RealtimeServerEvent)[0])
}
WORDS = "I see a dog and, behind it, another one."


def says(seen: Seen) -> str:
    return f" {WORDS}" if seen.continued else "<silence>"


class Conversation:
    """Every event must be of the class that its type names, strictly, or be one of ours."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.seen: list[Any] = []

    async def until(self, type_: str) -> Any:
        async with asyncio.timeout(60):
            while True:
                event = await self.connection.recv()
                if strictly.check(event.model_dump(exclude_unset=True)):
                    assert type(event) is CLASSES[event.type]
                self.seen.append(event)
                if event.type == type_:
                    return event

    async def ask(self, text: str, picture: bytes | None = None) -> None:
        content: list[Any] = [{"type": "input_text", "text": text}]
        if picture is not None:
            url = "data:image/jpeg;base64," + base64.b64encode(picture).decode()
            content.append({"type": "input_image", "image_url": url})
        item: Any = {"type": "message", "role": "user", "content": content}
        await self.connection.conversation.item.create(item=item)


@asynccontextmanager
async def connected(
    folder: Path, script: Script = says, per_token_s: float = 0.0
) -> AsyncIterator[tuple[FakeEngine, Served, Conversation]]:
    pace = Pace(per_token_s=per_token_s)
    async with FakeEngine(script, pace=pace) as engine, Served(engine, folder) as served:
        client = AsyncOpenAI(api_key="none needed", base_url=f"{served.url}/v1")
        async with client.realtime.connect(model=engine.model) as connection:
            yield engine, served, Conversation(connection)


async def test_a_conversation_in_words_and_pictures(tmp_path: Path) -> None:
    async with connected(tmp_path) as (engine, served, talk):
        created = await talk.until("session.created")
        assert created.session.model == engine.model
        await talk.connection.session.update(
            session={"type": "realtime", "output_modalities": ["text"], "instructions": "Be brief."}
        )
        for n, question in enumerate(("What do you see?", "And now?")):
            await talk.ask(question, jpeg(n, 224, 224))
            await talk.connection.response.create()
            done = await talk.until("response.done")
            assert done.response.status == "completed"
            assert done.response.output[0].content[0].text == WORDS
            asked = [chat for chat in engine.chats if chat.continued][-1]
            assert question in str(asked.messages) and len(asked.images) == n + 1
        deltas = [e.delta for e in talk.seen if e.type == "response.output_text.delta"]
        assert "".join(deltas) == 2 * WORDS and len(deltas) > 4
        types = [event.type for event in talk.seen]
        assert types.count("session.updated") == 2 and "conversation.item.added" in types
        assert not [event for event in talk.seen if event.type == "error"]
        (session,) = served.core.registry.sessions()
        assert session.view()["playback_commit_policy"] == "wall_clock"


async def test_a_response_is_cancelled(tmp_path: Path) -> None:
    def long(seen: Seen) -> str:
        return " " + "word " * 300 if seen.continued else "<silence>"

    async with connected(tmp_path, long, 0.02) as (engine, _, talk):
        await talk.ask("talk")
        await talk.connection.response.create(response={"metadata": {"topic": "words"}})
        await talk.until("response.output_text.delta")
        await talk.connection.response.cancel()
        done = await talk.until("response.done")
        assert done.response.status == "cancelled"
        assert done.response.status_details.reason == "client_cancelled"
        assert done.response.metadata == {"topic": "words"}
        await eventually(lambda: next(chat for chat in engine.chats if chat.continued).disconnected)
        await talk.connection.response.cancel()
        error = await talk.until("error")
        assert error.error.code == "response_not_active"
        await talk.ask("again")
        await talk.connection.response.create()
        assert (await talk.until("response.output_text.delta")).delta


async def test_a_wrong_key_never_gets_as_far_as_a_socket(tmp_path: Path) -> None:
    keys = {"me": "sha256:" + hashlib.sha256(b"secret").hexdigest()}
    async with FakeEngine(says) as engine, Served(engine, tmp_path, auth={"api_keys": keys}) as served:
        for key, fine in (("secret", True), ("guess", False)):
            client = AsyncOpenAI(api_key=key, base_url=f"{served.url}/v1")
            try:
                async with client.realtime.connect(model=engine.model) as connection:
                    await Conversation(connection).until("session.created")
                    assert fine
            except Exception as refused:
                assert not fine and "401" in str(refused)
