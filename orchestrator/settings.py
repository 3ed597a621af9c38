"""Every setting of the service, in one typed tree.

A setting is looked for in this order: command-line flag, environment, configuration file, default.
``limits.sessions``, for one, is ``--limits-sessions``, ``VIGIL_LIMITS__SESSIONS`` or, in the file::

    [limits]
    sessions = 64
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    Field,
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

from orchestrator.api.origins import is_loopback
from orchestrator.auth_settings import Auth
from orchestrator.engine_address import checked
from orchestrator.setting_groups import (
    Decision,
    Delegation,
    EarsGroup,
    Group,
    Images,
    Limits,
    MemoryGroup,
    Realtime,
    SentKey,
    Solver,
    SourcesGroup,
    StoreGroup,
    Summarizer,
    Timeouts,
    TracingGroup,
    VoiceGroup,
    Webhook,
    json_list,
)

ENV_PREFIX = "VIGIL_"
CONFIG_VARIABLE = "VIGIL_CONFIG"
"""Names the configuration file where no ``--config`` is given."""

OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, "VIGIL_CACHE", "VIGIL_ENGINE_PYTHON", "VIGIL_SERVER_KEY"})
"""Variables of other commands: the launcher's cache and interpreter, and the replay's key for a server."""

TEST_PREFIX = "VIGIL_TEST_"
"""Variables of the test suite."""

_FROM_FILE = "_from_file"


class SettingsError(Exception):
    """The settings are wrong. The message names each setting at fault and says what to change."""


def _targets(engine: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in engine.split(",") if part.strip())


class Settings(BaseSettings):
    """See the module's docstring for the sources. Unknown keys are refused."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, env_ignore_empty=True
    )

    engine: str = Field(
        "standin-cpu",
        description="URL of a running engine, several separated by commas, or a launch profile to start",
    )
    engine_api_key: SentKey | None = Field(None, description="key sent to the engine, if it wants one")
    model: str | None = Field(None, description="served model name; default: the only one the engine serves")
    family: str | None = Field(
        None,
        description="prompt pack or full-duplex family; default: the launch profile's, else by the served"
        " model, else generic",
    )
    tokenizer: Path | None = Field(
        None, description="tokenizer.json of the served model; default: beside its weights, if they are here"
    )
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8070, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    advertise: str | None = Field(
        None,
        description="URL at which other Vigil processes reach this one, as http://10.0.0.5:8070; with it"
        " several share the sessions of one store.url (PostgreSQL) and one data folder",
    )
    data: Path = Field(Path("vigil-data"), description="folder of the session store and its frames")
    persona: str = Field("default", description="persona of sessions that name none")
    language: str = Field("en", description="language of prompts and summaries")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what is logged")
    store: StoreGroup = StoreGroup()  # type: ignore[call-arg]
    limits: Limits = Limits()  # type: ignore[call-arg]
    images: Images = Images()  # type: ignore[call-arg]
    sources: SourcesGroup = SourcesGroup()  # type: ignore[call-arg]
    decision: Decision = Decision()  # type: ignore[call-arg]
    memory: MemoryGroup = MemoryGroup()  # type: ignore[call-arg]
    timeouts: Timeouts = Timeouts()  # type: ignore[call-arg]
    realtime: Realtime = Realtime()  # type: ignore[call-arg]
    delegation: Delegation = Delegation()  # type: ignore[call-arg]
    solvers: Annotated[tuple[Solver, ...], NoDecode] = Field(
        (),
        description="background solvers, first choice first, each as JSON: name, url, model, api_key,"
        " capabilities (text, images), deadline_s, max_in_flight, params; none: delegation is off",
    )
    summarizer: Summarizer = Summarizer()  # type: ignore[call-arg]
    ears: EarsGroup = EarsGroup()  # type: ignore[call-arg]
    voice: VoiceGroup = VoiceGroup()  # type: ignore[call-arg]
    webhook: Webhook = Webhook()  # type: ignore[call-arg]
    tracing: TracingGroup = TracingGroup()  # type: ignore[call-arg]
    auth: Auth = Auth()  # type: ignore[call-arg]

    @field_validator("solvers", mode="before")
    @classmethod
    def _written_as_json(cls, value: Any) -> Any:
        """A list of tables; from the environment JSON, from flags one JSON object each."""
        return json_list(value)

    @field_validator("solvers")
    @classmethod
    def _named_apart(cls, value: tuple[Solver, ...]) -> tuple[Solver, ...]:
        if len({solver.name for solver in value}) != len(value):
            raise ValueError("two solvers have the same name")
        return value

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that ``engine`` names."""
        return _targets(self.engine)

    @field_validator("engine")
    @classmethod
    def _addresses(cls, value: str) -> str:
        for target in _targets(value):
            if "://" in target:
                checked(target)
        return value

    @field_validator("advertise")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not re.fullmatch(r"https?://[^/\s?#@]+/?", value):
            raise ValueError(f"advertise is the root of this process, as http://10.0.0.5:8070, not {value}")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _shared_store(self) -> Self:
        url = self.store.url.get_secret_value() if self.store.url else ""
        if self.advertise and not url.startswith("postgresql"):
            raise ValueError(
                "advertise is for several processes, which share a PostgreSQL database: set store.url"
            )
        return self

    @model_validator(mode="after")
    def _open_only_at_home(self) -> Self:
        if not self.auth.required and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} can be reached from other machines, but auth.required is off: "
                "anyone could read and fill the sessions. Set auth.api_keys, or listen on 127.0.0.1"
            )
        return self

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
