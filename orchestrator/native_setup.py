"""The full-duplex engines that the settings name: found or started, each checked with a session."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from engine_launch import supervisor
from engine_launch.client import NoAnswer, Unreachable
from engine_launch.duplex_check import duplex_check
from engine_launch.errors import LaunchError, ProfileError
from engine_launch.facts import EngineFacts
from engine_launch.launch import up
from engine_launch.profile import load_profile
from engine_launch.selfcheck import SelfCheck, Status
from engine_launch.supervisor import Running
from engine_launch.target import already_running, duplex_family_at, http_address, is_socket, is_url
from orchestrator.duplex_spec import duplex_spec
from orchestrator.engine_address import twin
from orchestrator.engine_setup import Tell
from orchestrator.exits import Exit, SetupError
from orchestrator.settings import Settings
from prompts.native import NativeProfile
from prompts.native_loader import NativeError, native_names, native_profile

_STOP_S = 20.0
_UNFIT = frozenset({"session", "level", "unit", "modalities", "round trip", "rates"})
"""Checks that a session would fail too. That all places are taken is none of them."""


@dataclass(frozen=True, slots=True)
class NativeEngines:
    """Engines of one family that serve one model.

    :param urls: ``http://host:port`` of each, the first choice first
    :param started: those that this process started, and should stop at its end
    :param version: of the first that answers, if it tells
    """

    urls: tuple[str, ...]
    model: str
    profile: NativeProfile
    started: tuple[Running, ...] = ()
    version: str | None = None

    def stop(self) -> None:
        """Stop what was started here. Blocks for some seconds each."""
        for running in self.started:
            supervisor.stop(running, _STOP_S)


def native_family(settings: Settings) -> str | None:
    """The family of the settings' engines if it is a full-duplex one; ``None``: the engine is of the other
    kind, or does not answer.

    :raises SetupError: addresses can only be those of full-duplex engines, and none is there, or nobody says
        of which family they are
    """
    targets = settings.engines
    if settings.family is not None:
        if settings.family in native_names():
            return settings.family
        if any(is_socket(target) for target in targets):
            raise _no_family(f"{settings.family} is no family of full-duplex engines")
        return None
    away: dict[str, str] = {}
    for target in targets:
        if not is_url(target):
            with suppress(ProfileError):  # what is wrong with it is told where it is started
                if (named := load_profile(target)).duplex:
                    return named.family
            continue
        try:
            family = duplex_family_at(_http(target), _key(settings))
        except (Unreachable, NoAnswer) as gone:
            away[target] = str(gone)
        else:
            if family is not None:
                return family
    sockets = [target for target in targets if is_socket(target)]
    if not sockets:
        return None
    if away.keys() >= set(sockets):
        told = "; ".join(f"can't reach {target}: {away[target]}" for target in sockets)
        raise SetupError(told, "engine_unreachable", Exit.ENGINE_UNREACHABLE)
    raise _no_family("the model's name does not tell its family")


def prepare_native(settings: Settings, family: str, tell: Tell) -> NativeEngines:
    """Blocks: seconds for running engines, minutes for one that must be started.

    An engine that does not answer is told of and kept, as long as another one does.

    :raises SetupError: none answers, one is not what its profile says, or they serve different models
    """
    try:
        profile = native_profile(family)
    except NativeError as error:
        raise SetupError(str(error), "unknown_family", Exit.USAGE) from error
    urls: list[str] = []
    started: list[Running] = []
    found: list[EngineFacts] = []
    try:
        for target in settings.engines:
            url = _http(target) if is_url(target) else _run(target, profile, started, tell)
            if (known := twin(url, urls)) is not None:
                raise SetupError(
                    f"{url} and {known} are one engine; name it once", "engine_twice", Exit.USAGE
                )
            urls.append(url)
            tell(f"engine: {url}: opening a session to see what it can do")
            check = duplex_check(url, duplex_spec(profile), model=settings.model, api_key=_key(settings))
            if (facts := _judge(url, check, tell)) is not None:
                found.append(facts)
        if not found:
            raise SetupError("no engine answers", "engine_unreachable", Exit.ENGINE_UNREACHABLE)
        if len(models := sorted({each.model for each in found})) > 1:
            raise SetupError(
                f"the engines serve different models ({', '.join(models)}); name engines of one",
                "engines_differ",
                Exit.USAGE,
            )
    except BaseException:
        NativeEngines((), "", profile, tuple(started)).stop()
        raise
    return NativeEngines(tuple(urls), models[0], profile, tuple(started), found[0].version)


def _run(named: str, profile: NativeProfile, started: list[Running], tell: Tell) -> str:
    """The address of a launch profile's engine, started if it does not run."""
    spec = duplex_spec(profile)
    running = already_running(named, spec)
    if running is None:
        try:
            running = up(
                load_profile(named),
                duplex=spec,
                progress=lambda step, text: tell(f"engine: {step} {text}".rstrip()),
            )
        except LaunchError as error:
            raise SetupError(str(error), error.code, Exit.ENGINE_UNREACHABLE) from error
        started.append(running)
    return running.url.rstrip("/").removesuffix("/v1")


def _judge(url: str, check: SelfCheck, tell: Tell) -> EngineFacts | None:
    """What is known of it; ``None``: it gives no answer now."""
    for each in check.checks:
        if each.status is not Status.OK:
            tell(f"engine: {url}: {each.name}: {each.detail}. {each.remedy}".rstrip())
    failed = {each.name: each for each in check.checks if each.status is Status.FAIL}
    if (wrong := failed.get("model")) is not None:
        raise SetupError(f"{url}: {wrong.detail}. {wrong.remedy}", "model_not_found", Exit.MODEL_MISSING)
    for name in sorted(_UNFIT & failed.keys()):
        wrong = failed[name]
        raise SetupError(f"{url}: {name}: {wrong.detail}. {wrong.remedy}", "engine_unfit", Exit.MODEL_MISSING)
    return check.facts


def _no_family(why: str) -> SetupError:
    known = ", ".join(sorted(native_names()))
    return SetupError(f"{why}; name it with --family, one of {known}", "family_required", Exit.USAGE)


def _http(target: str) -> str:
    """Where an engine's other routes are."""
    parts = urlsplit(http_address(target))
    return f"{parts.scheme}://{parts.netloc}"


def _key(settings: Settings) -> str | None:
    secret = settings.engine_api_key
    return secret.get_secret_value() if secret else None
