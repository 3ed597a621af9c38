"""Every setting of the service, in one typed tree.

A setting is looked for in this order: command-line flag, environment, configuration file, default.
``limits.sessions``, for one, is ``--limits-sessions``, ``VIGIL_LIMITS__SESSIONS`` or, in the file::

    [limits]
    sessions = 64
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError as SourceError

ENV_PREFIX = "VIGIL_"
CONFIG_VARIABLE = "VIGIL_CONFIG"
"""Names the configuration file where no ``--config`` is given."""

OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "VIGIL_CACHE", "VIGIL_ENGINE_PYTHON", "VIGIL_SERVER_KEY"})
"""Variables of other commands: the launcher's cache and interpreter, and the replay's key for a server."""

TEST_PREFIX = "VIGIL_TEST_"
"""Variables of the test suite."""

_FROM_FILE = "_from_file"
_KEY_HASH = re.compile(r"^sha256:[0-9a-f]{64}$")


class SettingsError(Exception):
    """The settings are wrong. The message names each setting at fault and says what to change."""


class Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(Group):
    """Bounds on what clients may send and hold."""

    body_bytes: int = Field(32 * 2**20, ge=1024, description="largest request body, in bytes")
    frame_bytes: int = Field(8 * 2**20, ge=1024, description="largest encoded frame, in bytes")
    frames_per_request: int = Field(16, ge=1, le=64, description="frames that one request may bring")
    query_chars: int = Field(8000, ge=1, description="longest query, in characters")
    bodies_bytes: int = Field(512 * 2**20, ge=1024, description="all request bodies in work, in bytes")
    sessions: int = Field(64, ge=1, description="sessions open at a time")
    requests_per_session: int = Field(8, ge=1, description="requests of one session in work at a time")
    idle_s: float = Field(3600.0, gt=0, description="a session without input is closed after this, in s")
    idempotency_keys: int = Field(
        1024, ge=1, description="answers remembered by Idempotency-Key, per API key"
    )
    idempotency_ttl_s: float = Field(600.0, gt=0, description="how long such an answer is kept, in s")


class Images(Group):
    """Where frames may come from besides ``data:`` URLs."""

    allow_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="hosts whose http(s) image URLs are fetched; naming a private address admits it"
    )
    fetch_s: float = Field(5.0, gt=0, description="deadline of one such fetch, in s")

    @field_validator("allow_hosts", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return _comma_list(value)

    @field_validator("allow_hosts")
    @classmethod
    def _lower(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host.lower() for host in value)


class Decision(Group):
    """When the model speaks."""

    gate: bool = Field(True, description="stay silent until the first query")
    threshold: float | None = Field(None, gt=0, lt=1, description="speak above this score, decided greedily")
    seed: int | None = Field(None, ge=0, description="seed of the sampling, for runs that can be repeated")
    dedup_ratio: float = Field(
        1.0, gt=0, le=1, description="likeness from which a line counts as said already (1: equal)"
    )
    dedup_rearm_s: float = Field(60.0, ge=0, description="a line may be said again after this, in s")


class Timeouts(Group):
    """Deadlines, in seconds."""

    request_s: float = Field(120.0, gt=0, description="longest wait of a request for its answer, in s")
    body_s: float = Field(30.0, gt=0, description="longest wait for a request body, in s")
    engine_start_s: float = Field(900.0, gt=0, description="how long an engine may take to start, in s")
    watch_s: float = Field(10.0, gt=0, description="how often the engine is asked for a real answer, in s")
    ping_s: float = Field(10.0, gt=0, description="deadline of such an answer, in s")
    drain_s: float = Field(20.0, gt=0, description="time for open work to end at shutdown, in s")


class Solver(Group):
    """A chat endpoint that answers what the model hands over.

    ``capabilities`` decide who is asked: a question that comes with frames goes to solvers that take
    ``images`` first, then to the others; among equals the order of the settings counts. A solver that fails
    is followed by the next.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=40)
    url: str = Field(pattern=r"^https?://")
    model: str = Field(min_length=1)
    api_key: SecretStr | None = None
    capabilities: tuple[Literal["text", "images"], ...] = ("text",)
    deadline_s: float = Field(30.0, gt=0)
    max_in_flight: int = Field(4, ge=1)
    params: dict[str, Any] = {"max_tokens": 512, "temperature": 0.2}


class Delegation(Group):
    """Questions that the model hands to background solvers."""

    in_flight: int = Field(4, ge=1, description="questions of one session in work at a time")
    deadline_s: float = Field(60.0, gt=0, description="time for one question, all solvers together, in s")
    frames: int = Field(8, ge=0, le=64, description="newest frames that go along with a question; 0: none")


class Summarizer(Group):
    """Another engine that writes summaries and long-term blocks.

    Without a URL the engine of the sessions does, at low priority. It also does what this one can't: pictures
    where ``images`` is off, and every text that came to nothing here twice.
    """

    url: str | None = Field(
        None, pattern=r"^https?://", description="chat endpoint that writes summaries; default: the engine"
    )
    model: str | None = Field(None, description="its served model name")
    api_key: SecretStr | None = Field(None, description="key sent to it, if it wants one")
    images: bool = Field(
        True, description="it takes pictures; if not, it only merges summaries into long-term blocks"
    )
    deadline_s: float = Field(60.0, gt=0, description="time for one text, in s")
    max_in_flight: int = Field(2, ge=1, description="texts of all sessions in work at a time")
    params: Annotated[dict[str, Any], NoDecode] = Field(
        default_factory=dict, description="sent with each request as they are, as JSON"
    )

    @field_validator("params", mode="before")
    @classmethod
    def _json(cls, value: Any) -> Any:
        """A table; from the environment and from flags JSON."""
        given = value[0] if isinstance(value, list) and len(value) == 1 else value
        try:
            return json.loads(given) if isinstance(given, str) else given
        except ValueError as error:
            raise ValueError(f"no valid JSON: {error}") from None

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.url and not self.model:
            raise ValueError("a summarizer needs the name of its model")
        return self


class Auth(Group):
    """Who may use the service. Without keys only this machine may."""

    api_keys: Annotated[dict[str, str], NoDecode] = Field(
        default_factory=dict,
        description="NAME=sha256:HEX of each key; the name is the tenant (printf %s KEY | sha256sum)",
    )

    @field_validator("api_keys", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        pairs = _comma_list(value)
        if not isinstance(pairs, tuple | list):
            return pairs
        for pair in pairs:
            if not isinstance(pair, str) or "=" not in pair:
                raise ValueError("each key is NAME=sha256:HEX")
        return dict(pair.split("=", 1) for pair in pairs)

    @field_validator("api_keys")
    @classmethod
    def _hashed(cls, value: dict[str, str]) -> dict[str, str]:
        for name, key in value.items():
            if not _KEY_HASH.match(key):
                raise ValueError(
                    f"key {name!r} is no hash: write sha256: and 64 hex digits, never the key itself"
                )
        if len(set(value.values())) != len(value):
            raise ValueError("two names share one key")
        return value

    def tenant_of(self, key: str) -> str | None:
        """Whose key this is, or ``None``."""
        hashed = "sha256:" + hashlib.sha256(key.encode()).hexdigest()
        return next((name for name, known in self.api_keys.items() if known == hashed), None)


class Settings(BaseSettings):
    """See the module's docstring for the sources. Unknown keys are refused."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, env_ignore_empty=True
    )

    engine: str = Field("standin-cpu", description="URL of a running engine, or a launch profile to start")
    engine_api_key: SecretStr | None = Field(None, description="key sent to the engine, if it wants one")
    model: str | None = Field(None, description="served model name; default: the only one the engine serves")
    family: str | None = Field(
        None, description="prompt pack; default: the launch profile's, or generic for an engine URL"
    )
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8070, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    data: Path = Field(Path("vigil-data"), description="folder of the session store")
    persona: str = Field("default", description="persona of sessions that name none")
    language: str = Field("en", description="language of prompts and summaries")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what is logged")
    limits: Limits = Limits()  # type: ignore[call-arg]
    images: Images = Images()  # type: ignore[call-arg]
    decision: Decision = Decision()  # type: ignore[call-arg]
    timeouts: Timeouts = Timeouts()  # type: ignore[call-arg]
    delegation: Delegation = Delegation()  # type: ignore[call-arg]
    solvers: Annotated[tuple[Solver, ...], NoDecode] = Field(
        (),
        description="background solvers, first choice first, each as JSON: name, url, model, api_key,"
        " capabilities (text, images), deadline_s, max_in_flight, params; none: delegation is off",
    )
    summarizer: Summarizer = Summarizer()  # type: ignore[call-arg]
    auth: Auth = Auth()

    @field_validator("solvers", mode="before")
    @classmethod
    def _written_as_json(cls, value: Any) -> Any:
        """A list of tables; from the environment JSON, from flags one JSON object each."""
        try:
            return [json.loads(one) if isinstance(one, str) else one for one in _json_list(value)]
        except ValueError as error:
            raise ValueError(f"no valid JSON: {error}") from None

    @field_validator("solvers")
    @classmethod
    def _named_apart(cls, value: tuple[Solver, ...]) -> tuple[Solver, ...]:
        if len({solver.name for solver in value}) != len(value):
            raise ValueError("two solvers have the same name")
        return value

    @model_validator(mode="after")
    def _open_only_at_home(self) -> Self:
        if not self.auth.api_keys and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} can be reached from other machines, but no API keys are set: "
                "anyone could read and fill the sessions. Set auth.api_keys, or listen on 127.0.0.1"
            )
        return self

    @property
    def engine_is_url(self) -> bool:
        return self.engine.startswith(("http://", "https://"))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The file's values come from ``load_settings`` as one more keyword; below the environment."""
        assert isinstance(init_settings, InitSettingsSource)
        from_file = init_settings.init_kwargs.pop(_FROM_FILE, {})
        return init_settings, env_settings, InitSettingsSource(settings_cls, from_file)


def load_settings(flags: Mapping[str, Any] | None = None, config: Path | None = None) -> Settings:
    """The settings from all sources.

    :param flags: nested values given on the command line; they win
    :param config: TOML file; default: the file that ``VIGIL_CONFIG`` names, if it does
    :raises SettingsError: a wrong or unknown setting, or an unreadable file
    """
    if config is None and os.environ.get(CONFIG_VARIABLE):
        config = Path(os.environ[CONFIG_VARIABLE])
    from_file = _read_file(config) if config else {}
    _refuse_unknown_variables()
    try:
        return Settings(**{**dict(flags or {}), _FROM_FILE: from_file})
    except ValidationError as error:
        raise SettingsError(
            "\n".join(_explain(e["loc"], e["type"], e["msg"]) for e in error.errors())
        ) from None
    except SourceError as error:
        raise SettingsError(f"{error}; lists and tables in the environment are written as JSON") from None


def leaves(
    model: type[BaseModel] = Settings, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """Every single setting: its path in the tree and its field."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Group):
            yield from leaves(info.annotation, (*path, name))
        else:
            yield (*path, name), info


def flag_of(path: tuple[str, ...]) -> str:
    return "--" + "-".join(path).replace("_", "-")


def variable_of(path: tuple[str, ...]) -> str:
    return ENV_PREFIX + "__".join(path).upper()


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _comma_list(value: Any) -> Any:
    """A list or table as the environment writes it: ``a,b`` or JSON."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith(("[", "{")):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"no valid JSON: {error}") from None
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _json_list(value: Any) -> Any:
    parsed = json.loads(value) if isinstance(value, str) else value
    return [parsed] if isinstance(parsed, dict) else parsed


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"can't read the configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is no valid TOML: {error}") from None


def _refuse_unknown_variables() -> None:
    known = {variable_of(path) for path, _ in leaves()} | {variable_of((n,)) for n in Settings.model_fields}
    for name in os.environ:
        upper = name.upper()
        ours = upper.startswith(ENV_PREFIX) and not upper.startswith(TEST_PREFIX)
        if not ours or upper in OTHER_VARIABLES:
            continue
        # A table may be filled key by key: VIGIL_AUTH__API_KEYS__HOME.
        if upper not in known and not upper.startswith("VIGIL_AUTH__API_KEYS__"):
            raise SettingsError(f"unknown setting {name} in the environment{_suggest(upper, known)}")


def _explain(loc: tuple[int | str, ...], kind: str, message: str) -> str:
    path = tuple(str(part) for part in loc)
    dotted = ".".join(path)
    if kind == "extra_forbidden":
        return f"unknown setting {dotted}{_suggest(dotted, {'.'.join(p) for p, _ in leaves()})}"
    message = message.removeprefix("Value error, ")
    if not path:
        return message
    known = {p for p, _ in leaves()}
    while path and path not in known:
        path = path[:-1]
    where = f" ({flag_of(path)} or {variable_of(path)})" if path else ""
    return f"{dotted}: {message[:1].lower()}{message[1:]}{where}"


def _suggest(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
