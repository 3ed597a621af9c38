"""The engine that the settings name: found or started, checked with real requests, and its prompt pack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine_launch import supervisor
from engine_launch.client import NoAnswer, Unreachable
from engine_launch.errors import LaunchError, ProfileError
from engine_launch.facts import EngineFacts, TokenFacts
from engine_launch.selfcheck import SelfCheck, Status, TagSpec, Unlike, tokens_again
from engine_launch.supervisor import Running
from engine_launch.target import connect
from orchestrator.backends.replay.request import answer_pattern
from orchestrator.exits import Exit, SetupError
from orchestrator.settings import Settings
from orchestrator.token_watch import Away, Changed
from prompts.loader import PackError, load_pack
from prompts.pack import Pack

Tell = Callable[[str], None]
"""Told one line of progress at a time."""

GENERIC = "generic"
"""Pack of an engine whose model nobody has named."""

_STOP_S = 20.0
_AGAIN_S = 20.0
"""For each request of a self-check while others wait for its engine."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine and all that is known of it.

    :param started: set when this process started it, and should stop it at its end
    """

    url: str
    facts: EngineFacts
    pack: Pack
    started: Running | None = None

    def stop(self) -> None:
        """Stop the engine if it was started here. Blocks for some seconds."""
        if self.started is not None:
            supervisor.stop(self.started, _STOP_S)


def prepare_engine(settings: Settings, tell: Tell) -> Engine:
    """Blocks: seconds for a running engine, minutes for one that must be started.

    :raises SetupError: it can't be reached or started, or can't serve
    """
    pack_of = _pack(settings.family) if settings.family else None
    secret = settings.engine_api_key
    try:
        found = connect(
            settings.engine,
            # A pack that the operator names is meant, whatever the launch profile says.
            tags_for_family=lambda known: tags_of(
                pack_of or _pack(known), constrained=settings.decision.constrain
            ),
            family=settings.family or GENERIC,
            model=settings.model,
            api_key=secret.get_secret_value() if secret else None,
            progress=lambda step, text: tell(f"engine: {step} {text}".rstrip()),
        )
    except LaunchError as error:
        code = Exit.USAGE if isinstance(error, ProfileError) else Exit.ENGINE_UNREACHABLE
        raise SetupError(str(error), error.code, code) from error
    started = found.running if found.started else None
    try:
        facts = _usable(found.check)
    except SetupError:
        if started is not None:
            supervisor.stop(started, _STOP_S)
        raise
    for check in found.check.checks:
        if check.status is not Status.OK:
            tell(f"engine: {check.name}: {check.detail}. {check.remedy}".rstrip())
    return Engine(
        found.url.rstrip("/").removesuffix("/v1"), facts, pack_of or _pack(found.family or GENERIC), started
    )


def token_facts_again(settings: Settings, engine: Engine) -> TokenFacts | None:
    """What the token route of an engine that was away is now. Blocks for seconds.

    :raises Away: it does not answer
    :raises Changed: it is another one
    """
    secret = settings.engine_api_key
    try:
        return tokens_again(
            engine.url,
            engine.facts,
            tags=tags_of(engine.pack),
            launched=supervisor.find_by_url(engine.url),
            api_key=secret.get_secret_value() if secret else None,
            deadline_s=_AGAIN_S,
        )
    except (Unreachable, NoAnswer) as gone:
        raise Away(str(gone)) from gone
    except Unlike as unlike:
        raise Changed(str(unlike)) from unlike


def tags_of(pack: Pack, *, constrained: bool = False) -> TagSpec:
    """The marks of a pack as the self-check takes them; ``constrained``: answers are to be held to them."""
    tags = pack.tags
    named = {"silence": tags.silence, "response": tags.response, "delegation": tags.delegation}
    pattern = answer_pattern(tags) if constrained else None
    return TagSpec({action: tag for action, tag in named.items() if tag}, pattern)


def _pack(family: str) -> Pack:
    try:
        return load_pack(family)
    except PackError as error:
        raise SetupError(str(error), "unknown_family", Exit.USAGE) from error


def _usable(result: SelfCheck) -> EngineFacts:
    """The facts, if sessions can run on them at all; what only costs speed is told, not refused."""
    failed = {check.name: check for check in result.checks if check.status is Status.FAIL}
    facts = result.facts
    if facts is None:
        check = next(iter(failed.values()))
        missing = check.name == "model"
        raise SetupError(
            f"{check.detail}. {check.remedy}",
            "model_not_found" if missing else "engine_unreachable",
            Exit.MODEL_MISSING if missing else Exit.ENGINE_UNREACHABLE,
        )
    for needed in ("context", "images"):
        if needed in failed:
            check = failed[needed]
            raise SetupError(f"{check.detail}. {check.remedy}", "engine_unfit", Exit.MODEL_MISSING)
    return facts
