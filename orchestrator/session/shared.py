"""What the parts of one session core share: identity, configuration, state, and the effects that follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from orchestrator.session.backend import Capabilities, Ids, SessionConfig
from orchestrator.session.effects import Effect, Emit, Record
from orchestrator.session.events import ErrorEvent, Event
from orchestrator.session.facts import SessionFact
from orchestrator.session.fence import Fence
from orchestrator.session.limits import SessionLimits
from orchestrator.session.overlap import OverlapPolicy, OverlapSettings
from orchestrator.session.states import State, Trigger, move
from orchestrator.wire.errors import VigilError


class Sink(Protocol):
    """Takes every event on its way to the client's socket."""

    def admit(self, event: Event) -> None: ...


class Shared:
    """:param fence: current (epoch, turn); work is stamped with a copy when it starts
    :param now: monotonic seconds of the input being handled
    """

    def __init__(
        self,
        session_id: str,
        config: SessionConfig,
        capabilities: Capabilities,
        limits: SessionLimits,
        ids: Ids,
    ) -> None:
        self.session_id = session_id
        self.config = config
        self.capabilities = capabilities
        self.limits = limits
        self.ids = ids
        self.state = State.IDLE
        self.fence = Fence()
        self.now = 0.0
        self.sink: Sink | None = None
        self._effects: list[Effect] = []

    # --- how the session is set --------------------------------------------------------------------------

    @property
    def auto(self) -> bool:
        """The model decides when to speak; otherwise turn mode."""
        asked = self.config.auto_response
        return self.capabilities.auto_response if asked is None else asked

    @property
    def modalities(self) -> tuple[str, ...]:
        """What the client wants and the backend has, text at least."""
        return self.offered(None)

    def offered(self, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
        """The same for one response; ``None``: as the session is set."""
        asked = self.config.modalities if wanted is None else wanted
        both = tuple(m for m in asked if m in self.capabilities.output_modalities)
        return both or ("text",)

    @property
    def overlap(self) -> OverlapSettings:
        return OverlapSettings(
            auto_response=self.auto,
            policy=OverlapPolicy(self.config.overlap_policy),
            supports_barge_in=self.capabilities.supports_barge_in,
            video_alone=self.capabilities.video_alone,
            short_ack_ms=self.config.overlap_short_ack_ms,
        )

    # --- where it stands ---------------------------------------------------------------------------------

    def move(self, trigger: Trigger) -> None:
        """Change the state, or raise the typed error of an illegal trigger."""
        self.state = move(self.state, trigger)

    def require_open(self) -> None:
        if not self.state.is_open:
            move(self.state, Trigger.INPUT)

    # --- what follows ------------------------------------------------------------------------------------

    def do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def record(self, fact: SessionFact) -> None:
        self._effects.append(Record(fact))

    def emit(self, event: Event) -> None:
        self._effects.append(Emit(event))
        if self.sink is not None:
            self.sink.admit(event)

    def emit_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.emit(event)

    def error(self, error: VigilError, event_id: str | None = None) -> None:
        error.event_id = error.event_id or event_id
        self.emit(ErrorEvent(error))

    def take_effects(self) -> tuple[Effect, ...]:
        effects, self._effects = tuple(self._effects), []
        return effects
