"""Bearer keys and tokens: whose they are."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import jwt

from orchestrator.wire.errors import Unauthenticated

KEY_PREFIX = "vigil_"
TOKEN_TENANT_MAX = 128
"""Characters of a token's tenant."""

CLOCK_SKEW_S = 30


def new_key() -> str:
    """A fresh key of 32 random bytes; may stand in a header, a URL or a WebSocket subprotocol."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def key_hash(key: str) -> str:
    """``sha256:HEX``. Keys are random, so a plain hash gives nothing away."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Which JSON Web Tokens count.

    :param key: shared secret, or public key as PEM; ``algorithm`` is the only one accepted
    :param tenant_claim: whose value names the tenant
    """

    key: str
    algorithm: str
    issuer: str
    audience: str
    tenant_claim: str


class Credentials:
    """:param keys: tenant by ``key_hash``"""

    def __init__(self, keys: Mapping[str, str], tokens: TokenRules | None = None) -> None:
        self._keys = dict(keys)
        self._tokens = tokens

    def tenant_of(self, bearer: str | None) -> str:
        """Whose credential this is.

        A token's tenant is ``jwt:`` and its claim, so that no issuer can name the tenant of a key.

        :raises Unauthenticated: ``invalid_api_key``, ``invalid_token``, ``token_expired``
        """
        if not bearer:
            raise Unauthenticated("send an API key as Authorization: Bearer KEY")
        # Looked up by hash: how long that takes tells nothing of a key.
        tenant = self._keys.get(key_hash(bearer))
        if tenant is not None:
            return tenant
        if self._tokens is not None and bearer.count(".") == 2:
            return _tenant_of_token(bearer, self._tokens)
        raise Unauthenticated("this API key is not known here")


def _tenant_of_token(token: str, rules: TokenRules) -> str:
    try:
        claims = jwt.decode(
            token,
            rules.key,
            algorithms=[rules.algorithm],
            issuer=rules.issuer,
            audience=rules.audience,
            leeway=CLOCK_SKEW_S,
            options={"require": ["exp", "iss", "aud", rules.tenant_claim]},
        )
    except jwt.ExpiredSignatureError:
        raise Unauthenticated("the token has expired; get a new one", code="token_expired") from None
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as wrong:
        raise Unauthenticated(
            f"this token does not count here ({type(wrong).__name__})", code="invalid_token"
        ) from None
    tenant = claims[rules.tenant_claim]
    if not isinstance(tenant, str) or not 0 < len(tenant) <= TOKEN_TENANT_MAX or not tenant.isprintable():
        raise Unauthenticated(
            f"the token's {rules.tenant_claim} is a printable text of at most {TOKEN_TENANT_MAX} characters",
            code="invalid_token",
        )
    return f"jwt:{tenant}"
