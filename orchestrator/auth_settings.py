"""Settings of who may use the service, and how much."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

import jwt
from pydantic import Field, SecretStr, TypeAdapter, field_validator, model_validator
from pydantic_settings import NoDecode

from orchestrator.api.credentials import Credentials, TokenRules
from orchestrator.api.origins import ANY, is_origin
from orchestrator.api.quota import Quota, Quotas
from orchestrator.engines.room import Priority
from orchestrator.setting_groups import Group, comma_list, parsed_json

_KEY_HASH = re.compile(r"^sha256:[0-9a-f]{64}$")
_TENANT = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_SECRET_MIN = 32

Amount = Annotated[int | None, Field(ge=1)]


class ApiKey(Group):
    """One key. ``tenant``: whose it is, if it is not a tenant of its own name."""

    hash: str
    tenant: str | None = Field(None, pattern=_TENANT, max_length=64)


class Jwt(Group):
    """JSON Web Tokens of an issuer that the operator trusts; off without a key."""

    key: SecretStr | None = Field(
        None, description="shared secret of at least 32 characters, or the issuer's public key as PEM"
    )
    algorithm: Literal["HS256", "RS256", "ES256", "EdDSA"] = Field(
        "HS256", description="the only accepted signature"
    )
    issuer: str | None = Field(None, description="required value of the claim iss")
    audience: str | None = Field(None, description="required value of the claim aud")
    tenant_claim: str = Field("sub", min_length=1, description="claim that names the tenant")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.key is None:
            return self
        if not self.issuer or not self.audience:
            raise ValueError("tokens need an issuer and an audience, or any token of that key would count")
        key = self.key.get_secret_value()
        if self.algorithm.startswith("HS"):
            if len(key) < _SECRET_MIN:
                raise ValueError(f"a shared secret has at least {_SECRET_MIN} characters")
            return self
        try:
            jwt.get_algorithm_by_name(self.algorithm).prepare_key(key)
        except (jwt.PyJWTError, ValueError, TypeError):
            raise ValueError(f"the key is no public key in PEM for {self.algorithm}") from None
        return self

    @property
    def rules(self) -> TokenRules | None:
        if self.key is None:
            return None
        assert self.issuer and self.audience
        return TokenRules(
            self.key.get_secret_value(), self.algorithm, self.issuer, self.audience, self.tenant_claim
        )


class QuotaGroup(Group):
    """What each tenant may use. Rates refill evenly; up to one minute's worth may come at once."""

    sessions: Amount = Field(None, description="sessions of a tenant open at a time; default: all there are")
    requests_per_minute: Amount = Field(None, description="HTTP requests of a tenant; default: any number")
    handshakes_per_minute: Amount = Field(600, description="sockets that a tenant may open a minute")
    input_bytes_per_minute: Amount = Field(
        None, description="bytes of bodies and socket events of a tenant; default: any number"
    )
    ticks_per_minute: Amount = Field(
        None, description="decisions and plain answers of the engine for a tenant; default: any number"
    )
    events_per_second: Amount = Field(1000, description="events that one socket may send a second")
    priority: Literal["low", "normal", "high"] = Field(
        "normal",
        description="class of a tenant's sessions where engines are short: lower ones are refused first,"
        " higher ones decide first",
    )

    def quota(self) -> Quota:
        return Quota(**self.model_dump(exclude={"priority"}))


class Auth(Group):
    """Who may use the service: holders of keys or tokens, or this machine alone."""

    required: bool = Field(
        True, description="callers need a key or a token; without, only this machine is served"
    )
    api_keys: Annotated[dict[str, ApiKey], NoDecode] = Field(
        default_factory=dict,
        description="NAME=sha256:HEX of each key (vigil key makes one); the name is the tenant. In JSON or"
        " TOML also {hash, tenant}",
    )
    operators: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="tenants that may see and drain the engines; without keys this machine may"
    )
    jwt: Jwt = Jwt()  # type: ignore[call-arg]
    origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="origins of web pages that may use the service, such as https://app.example; *: any"
    )
    failed_logins_per_minute: Amount = Field(
        60, description="wrong keys from one address that are told so; more get 429 and have to wait"
    )
    quota: QuotaGroup = QuotaGroup()  # type: ignore[call-arg]
    tenant_quotas: Annotated[dict[str, QuotaGroup], NoDecode] = Field(
        default_factory=dict,
        description="quotas of single tenants, as JSON by name; what they leave out is as for everyone",
    )

    @field_validator("api_keys", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        pairs = comma_list(value)
        if isinstance(pairs, tuple | list):
            if any(not isinstance(pair, str) or "=" not in pair for pair in pairs):
                raise ValueError("each key is NAME=sha256:HEX")
            pairs = dict(pair.split("=", 1) for pair in pairs)
        if not isinstance(pairs, dict):
            return pairs
        read = {name: {"hash": key} if isinstance(key, str) else key for name, key in pairs.items()}
        for name, key in read.items():
            # Checked here, so that no message ever repeats what may be a key.
            if isinstance(key, dict) and not _KEY_HASH.match(str(key.get("hash", ""))):
                raise ValueError(
                    f"key {name!r} is no hash: write sha256: and 64 hex digits, never the key itself"
                )
        return read

    @field_validator("api_keys")
    @classmethod
    def _apart(cls, value: dict[str, ApiKey]) -> dict[str, ApiKey]:
        if len({key.hash for key in value.values()}) != len(value):
            raise ValueError("two names share one key")
        for name in value:
            if not re.match(_TENANT, name):
                raise ValueError(f"the name {name!r} has other characters than letters, digits, . _ and -")
        return value

    @field_validator("tenant_quotas", mode="before")
    @classmethod
    def _json(cls, value: Any) -> Any:
        given = value[0] if isinstance(value, list) and len(value) == 1 else value
        return parsed_json(given)

    @field_validator("origins", "operators", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return comma_list(value)

    @field_validator("origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [origin for origin in value if origin != ANY and not is_origin(origin)]
        if wrong:
            raise ValueError(
                f"{wrong[0]!r} is no origin: write scheme, host and port, as https://app.example"
            )
        return value

    @model_validator(mode="after")
    def _closed(self) -> Self:
        if not self.required and ANY in self.origins:
            raise ValueError("origins: any page could use a service without keys; name the pages")
        if not self.required and (self.api_keys or self.jwt.key):
            raise ValueError("keys or tokens are set, but required is off: nobody would be asked for them")
        return self

    @property
    def usable(self) -> bool:
        """Somebody can come in."""
        return not self.required or bool(self.api_keys) or self.jwt.key is not None

    def credentials(self) -> Credentials | None:
        """``None`` where keys are off."""
        if not self.required:
            return None
        return Credentials({k.hash: k.tenant or name for name, k in self.api_keys.items()}, self.jwt.rules)

    def quotas(self) -> Quotas:
        return Quotas(self.quota.quota(), {name: self._group(name).quota() for name in self.tenant_quotas})

    def priority_of(self, tenant: str) -> Priority:
        return Priority[self._group(tenant).priority.upper()]

    @property
    def classes(self) -> frozenset[Priority]:
        """Those that sessions may be of."""
        groups = [self.quota, *map(self._group, self.tenant_quotas)]
        return frozenset(Priority[group.priority.upper()] for group in groups)

    def _group(self, tenant: str) -> QuotaGroup:
        """A tenant's own figures over everyone's."""
        own = self.tenant_quotas.get(tenant)
        if own is None:
            return self.quota
        return self.quota.model_copy(update=own.model_dump(exclude_unset=True))


TENANT_NAME: TypeAdapter[str] = TypeAdapter(Annotated[str, Field(pattern=_TENANT, max_length=64)])
"""Names that keys and tenants may have."""
