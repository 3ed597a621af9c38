"""Any interleaving of what a client does, an engine says and what breaks: a session's invariants."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bridges.duplex_client.link import AudioChunk, EngineFault, ResponseCreated, ResponseDone, SpokenText
from orchestrator.backends.native.options import NativeOptions
from orchestrator.session.commands import Cancel, ClearInput, CreateResponse, Interrupt, PlaybackAck
from orchestrator.session.events import OutputAudioDelta, OutputTranscriptDelta
from orchestrator.session.events import ResponseCreated as Created
from orchestrator.session.events import ResponseDone as Done
from orchestrator.wire.errors import VigilError
from prompts.native import NativeProfile, SilenceContinuation
from tests.backends.native import harness
from tests.backends.native.harness import DUPLEX, JPEG, TURN, VISION, Rig, open_rig
from tests.fakes.clock import settle
from tests.fakes.link import RATE, listen, tone

PROFILES = (
    DUPLEX,
    VISION,
    TURN,
    replace(DUPLEX, concurrent_turns=True),
    replace(DUPLEX, silence_continuation=SilenceContinuation.VIGIL),
    replace(DUPLEX, forward_commit=True),
)
STEPS = st.lists(
    st.sampled_from(
        ["append"] * 6
        + ["frame", "commit", "create", "cancel", "clear", "interrupt", "ack", "wait", "wait"]
        + ["begin", "begin", "speak", "speak", "speak", "end", "end", "listen", "fault", "refuse"]
        + ["drop", "resume", "lose"]
    ),
    max_size=50,
)


BLOCK = 160
ENDS = ("completed", "completed", "cancelled", "failed")


def numbered(count: int, start: int) -> bytes:
    """Samples that tell which block of the stream they are of."""
    return ((np.arange(start, start + count) // BLOCK + 1) / 32768).astype(np.float32).tobytes()


class Player:
    """Takes the steps."""

    def __init__(self, rig: Rig, dice: random.Random) -> None:
        self.rig, self.dice = rig, dice
        self.samples = 0
        self.responses = 0
        self.open: list[tuple[object, str]] = []
        self.down = False

    async def step(self, name: str) -> None:
        rig, dice = self.rig, self.dice
        try:
            match name:
                case "append":
                    count = dice.choice([160, 3200, 8000, 16000, 40000])
                    pictures = (JPEG,) if dice.random() < 0.2 else ()
                    await rig.append(0, *pictures, pcm=numbered(count, self.samples), speech=True)
                    self.samples += count
                case "frame":
                    await rig.append(0, JPEG)
                case "commit":
                    await rig.commit(create=dice.random() < 0.5)
                case "create":
                    await rig.session.submit(CreateResponse())
                case "cancel":
                    await rig.session.submit(Cancel())
                case "clear":
                    await rig.session.submit(ClearInput())
                case "interrupt":
                    await rig.session.submit(Interrupt(barge_in=dice.random() < 0.5))
                case "ack":
                    await rig.session.submit(PlaybackAck(dice.randrange(3000)))
                case "wait":
                    await rig.clock.advance(dice.choice([0.06, 0.5, 1.0, 3.0]))
                case _:
                    self._engine(name)
        except VigilError:
            pass  # refused at the door
        await settle()

    def _engine(self, name: str) -> None:
        link, dice = self.rig.link, self.dice
        if link.ended:
            return
        self.open = [each for each in self.open if each[0] is link]
        response = dice.choice(self.open)[1] if self.open else f"r{self.responses}"
        match name:
            case "begin":
                self.responses += 1
                self.open.append((link, f"r{self.responses}"))
                link.emit(ResponseCreated(f"r{self.responses}"))
            case "speak":
                link.emit(AudioChunk(response, tone(200), RATE))
                if dice.random() < 0.9:
                    link.emit(SpokenText(response, dice.choice(["", "word "])))
            case "end":
                link.emit(ResponseDone(response, dice.choice(ENDS)))
                self.open = [each for each in self.open if each[1] != response]
            case "listen":
                link.emit(listen(response_id=dice.choice([None, response]) if self.open else None))
            case "fault":
                link.emit(EngineFault("engine_error", "scripted", dice.choice([None, "evt_1"])))
            case "refuse":
                link.fail("append", "engine_error")
            case "drop" if not self.down:
                self.down = True
                link.drop()
            case "resume" if self.down:
                self.down = False
                link.resume()
            case "lose":
                self.down = False
                link.end(confirmed=dice.random() < 0.5)


async def play(profile: NativeProfile, steps: list[str], seed: int) -> None:
    harness.OPENED.clear()
    rig = await open_rig(profile, options=NativeOptions(lives=50))
    player = Player(rig, random.Random(seed))
    for name in steps:
        await player.step(name)
    if player.down:
        rig.link.resume()
    for _ in range(20):
        await rig.clock.advance(5)
    check(rig)
    assert rig.backend.statistics()["input"]["queued"] == 0 or not rig.session.is_open
    await rig.finish()
    check(rig, over=True)
    assert all(seat.over for seat in rig.seats.seats), rig.seats.states
    assert rig.session.statistics()["pending_input_bytes"] == 0


def check(rig: Rig, *, over: bool = False) -> None:
    events = rig.events()
    assert "internal_error" not in rig.codes()
    # Every response begins once and ends once, and nothing of it comes outside of that.
    begun: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for event in events:
        match event:
            case Created(response_id=response_id):
                begun[response_id] += 1
            case Done(response_id=response_id):
                ended[response_id] += 1
            case OutputAudioDelta(response_id=response_id) | OutputTranscriptDelta(response_id=response_id):
                assert begun[response_id] == 1 and not ended[response_id]
            case _:
                pass
    assert set(begun.values()) <= {1} and set(ended.values()) <= {1}
    assert not ended - begun
    if over:
        assert begun == ended
    # Audio comes in epochs that never go back, each chunk with its words.
    epochs = [event.fence.epoch for event in rig.of(OutputAudioDelta)]
    assert epochs == sorted(epochs)
    paired = sum(event.paired for event in rig.of(OutputTranscriptDelta))
    assert paired == len(rig.of(OutputAudioDelta))
    # Every engine session got exact units; the client's own samples once and in order.
    blocks: list[int] = []
    for link in rig.links.made:
        for unit in link.units:
            assert unit.pcm is None or len(unit.pcm) == 32000
            values = np.frombuffer(unit.pcm or b"", "<i2")
            blocks += [int(value) for value in values[::BLOCK] if value]
    assert blocks == sorted(blocks)
    assert len(blocks) == len(set(blocks))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PROFILES), STEPS, st.integers(0, 2**16))
def test_any_order_keeps_the_invariants(profile: NativeProfile, steps: list[str], seed: int) -> None:
    asyncio.run(play(profile, steps, seed))
