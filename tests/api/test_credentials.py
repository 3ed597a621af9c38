"""Keys and tokens: whose they are, and that nothing else opens the door."""

from __future__ import annotations

import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.api.credentials import Credentials, TokenRules, key_hash, new_key
from orchestrator.wire.errors import Unauthenticated

SECRET = "s" * 64
RULES = TokenRules(SECRET, "HS256", "https://issuer.example", "vigil", "sub")
CREDENTIALS = Credentials({key_hash("good"): "home"}, RULES)


def token(secret: str = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    now = int(time.time())
    usual = {"sub": "ann", "iss": RULES.issuer, "aud": RULES.audience, "exp": now + 600}
    kept = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    return jwt.encode(kept, secret, algorithm=algorithm)


def refusal(bearer: str | None, credentials: Credentials = CREDENTIALS) -> str:
    with pytest.raises(Unauthenticated) as refused:
        credentials.tenant_of(bearer)
    assert bearer is None or len(bearer) < 9 or bearer not in refused.value.message
    return refused.value.code


def test_a_key_is_known_by_its_hash_alone() -> None:
    assert CREDENTIALS.tenant_of("good") == "home"
    for bad in (None, "", "bad", key_hash("good"), "good "):
        assert refusal(bad) == "invalid_api_key"


@given(st.text(max_size=60))
def test_nothing_else_is_a_key(bearer: str) -> None:
    if bearer != "good":
        assert refusal(bearer) in ("invalid_api_key", "invalid_token")


def test_keys_are_made_at_random_and_fit_in_a_subprotocol() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) == 49 and key.replace("-", "").replace("_", "").isalnum() for key in keys)


def test_a_tokens_tenant_is_never_a_keys() -> None:
    assert CREDENTIALS.tenant_of(token(sub="home")) == "jwt:home"


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"exp": int(time.time()) - 100}, "token_expired"),
        ({"exp": None}, "invalid_token"),
        ({"nbf": int(time.time()) + 1000}, "invalid_token"),
        ({"iss": "https://other.example"}, "invalid_token"),
        ({"iss": None}, "invalid_token"),
        ({"aud": "other"}, "invalid_token"),
        ({"aud": None}, "invalid_token"),
        ({"sub": None}, "invalid_token"),
        ({"sub": ""}, "invalid_token"),
        ({"sub": "a\nb"}, "invalid_token"),
        ({"sub": "a" * 129}, "invalid_token"),
        ({"secret": "x" * 64}, "invalid_token"),
        ({"algorithm": "HS512"}, "invalid_token"),
    ],
)
def test_a_token_that_does_not_count(claims: dict[str, Any], code: str) -> None:
    assert refusal(token(**claims)) == code


def test_an_unsigned_token_does_not_count() -> None:
    assert refusal(token("", algorithm="none")) == "invalid_token"
    head, body, _ = token().split(".")
    assert refusal(f"{head}.{body}.") == "invalid_token"


def test_another_claim_may_name_the_tenant() -> None:
    rules = TokenRules(SECRET, "HS256", RULES.issuer, RULES.audience, "org")
    assert Credentials({}, rules).tenant_of(token(org="acme")) == "jwt:acme"
    assert refusal(token(), Credentials({}, rules)) == "invalid_token"
    assert refusal(token(org=7), Credentials({}, rules)) == "invalid_token"


def test_a_public_key_is_not_taken_for_a_shared_secret() -> None:
    """The classic confusion: a token signed with the public key's text as if it were a secret."""
    private = ec.generate_private_key(ec.SECP256R1())
    public = (
        private.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )
    credentials = Credentials({}, TokenRules(public, "ES256", RULES.issuer, RULES.audience, "sub"))
    signed = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    assert credentials.tenant_of(token(signed, "ES256")) == "jwt:ann"
    assert refusal(token(), credentials) == "invalid_token"


def test_without_rules_no_token_counts() -> None:
    assert refusal(token(), Credentials({key_hash("good"): "home"})) == "invalid_api_key"
