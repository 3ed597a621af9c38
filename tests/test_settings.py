"""One settings tree from flags, environment, file and defaults."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.origins import is_loopback
from orchestrator.settings import (
    Settings,
    SettingsError,
    flag_of,
    leaves,
    load_settings,
    variable_of,
)

HASH = "sha256:" + hashlib.sha256(b"secret").hexdigest()


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import os

    for name in list(os.environ):
        if name.upper().startswith("VIGIL_"):
            monkeypatch.delenv(name)
    yield


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_defaults() -> None:
    settings = load_settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8070)
    assert settings.limits.sessions >= 1
    assert settings.auth.api_keys == {}


def test_flags_come_before_environment_before_file_before_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(
        tmp_path / "vigil.toml",
        "port = 1\nmodel = 'file'\n[limits]\nsessions = 1\nidle_s = 1\nquery_chars = 1\n",
    )
    monkeypatch.setenv("VIGIL_LIMITS__SESSIONS", "2")
    monkeypatch.setenv("VIGIL_LIMITS__IDLE_S", "2")
    settings = load_settings({"limits": {"sessions": 3}}, config)
    assert settings.limits.sessions == 3
    assert settings.limits.idle_s == 2
    assert settings.limits.query_chars == 1
    assert (settings.port, settings.model) == (1, "file")
    assert settings.timeouts.drain_s == 20


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIGIL_CONFIG", str(write(tmp_path / "vigil.toml", "port = 1")))
    assert load_settings().port == 1


@pytest.mark.parametrize("path", [path for path, _ in leaves()], ids=".".join)
def test_every_setting_has_a_description_a_flag_and_a_variable(path: tuple[str, ...]) -> None:
    info = dict(leaves())[path]
    assert info.description
    assert flag_of(path).startswith("--")
    assert variable_of(path).startswith("VIGIL_")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", ["unknown setting prot", "did you mean port?"]),
        ("[limits]\nsesions = 1", ["unknown setting limits.sesions", "did you mean limits.sessions?"]),
        ("[limits]\nsessions = 'many'", ["limits.sessions", "--limits-sessions", "VIGIL_LIMITS__SESSIONS"]),
        ("port = 70000", ["port", "65535"]),
        ("port = ", ["no valid TOML"]),
        ("[decision]\nthreshold = 1.5", ["decision.threshold"]),
        ("log_level = 'loud'", ["log_level"]),
    ],
)
def test_a_wrong_file_is_refused_with_what_to_change(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(config=write(tmp_path / "vigil.toml", text))
    for word in words:
        assert word in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't read"):
        load_settings(config=tmp_path / "none.toml")


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIGIL_MODLE", "x")
    with pytest.raises(SettingsError, match=r"VIGIL_MODLE .*did you mean VIGIL_MODEL\?"):
        load_settings()


def test_variables_of_other_commands_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIGIL_CACHE", "VIGIL_ENGINE_PYTHON", "VIGIL_SERVER_KEY"):
        monkeypatch.setenv(name, "x")
    load_settings()


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"port": "x", "limits": {"sessions": 0}})
    assert len(str(refused.value).splitlines()) == 2


@pytest.mark.parametrize("written", ["a.example,B.example:8080", '["a.example", "B.example:8080"]'])
def test_lists_in_the_environment(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("VIGIL_IMAGES__ALLOW_HOSTS", written)
    assert load_settings().images.allow_hosts == ("a.example", "b.example:8080")


class TestSolvers:
    TABLE = "[[solvers]]\nname = 'a'\nurl = 'http://127.0.0.1:1'\nmodel = 'm'\n"
    JSON = '{"name": "a", "url": "http://127.0.0.1:1", "model": "m"}'

    def test_none_by_default(self) -> None:
        assert load_settings().solvers == ()

    def test_in_the_file(self, tmp_path: Path) -> None:
        more = "api_key = 'k'\ncapabilities = ['text', 'images']\nparams = { max_completion_tokens = 9 }\n"
        (solver,) = load_settings(config=write(tmp_path / "vigil.toml", self.TABLE + more)).solvers
        assert (solver.name, solver.capabilities) == ("a", ("text", "images"))
        assert solver.params == {"max_completion_tokens": 9}
        assert "'k'" not in repr(solver)

    @pytest.mark.parametrize("written", [JSON, f"[{JSON}]"])
    def test_in_the_environment(self, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
        monkeypatch.setenv("VIGIL_SOLVERS", written)
        (solver,) = load_settings().solvers
        assert (solver.url, solver.capabilities) == ("http://127.0.0.1:1", ("text",))

    def test_as_flags(self) -> None:
        second = self.JSON.replace('"a"', '"b"')
        assert [s.name for s in load_settings({"solvers": [self.JSON, second]}).solvers] == ["a", "b"]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (TABLE + TABLE, "the same name"),
            (TABLE.replace("http://", "ftp://"), "solvers.0.url"),
            (TABLE.replace("model = 'm'", ""), "solvers.0.model"),
            (TABLE + "capabilities = ['search']", "solvers.0.capabilities"),
            (TABLE + "speed = 1", "solvers.0.speed"),
        ],
    )
    def test_wrong_ones(self, tmp_path: Path, text: str, words: str) -> None:
        with pytest.raises(SettingsError, match=words):
            load_settings(config=write(tmp_path / "vigil.toml", text))

    def test_what_is_no_json(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VIGIL_SOLVERS", "http://127.0.0.1:1")
        with pytest.raises(SettingsError, match="no valid JSON"):
            load_settings()


def whose(settings: Settings, key: str) -> str:
    credentials = settings.auth.credentials()
    assert credentials is not None
    return credentials.tenant_of(key)


class TestKeys:
    @pytest.mark.parametrize("written", [f"home={HASH}", f'{{"home": "{HASH}"}}'])
    def test_in_the_environment(self, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
        monkeypatch.setenv("VIGIL_AUTH__API_KEYS", written)
        assert whose(load_settings(), "secret") == "home"

    def test_in_the_file(self, tmp_path: Path) -> None:
        config = write(tmp_path / "vigil.toml", f"[auth.api_keys]\nhome = '{HASH}'")
        assert whose(load_settings(config=config), "secret") == "home"

    def test_as_a_flag(self) -> None:
        assert whose(load_settings({"auth": {"api_keys": [f"home={HASH}"]}}), "secret") == "home"

    def test_a_key_in_the_clear_is_refused_and_not_repeated(self) -> None:
        with pytest.raises(SettingsError, match="never the key itself") as refused:
            load_settings({"auth": {"api_keys": {"home": "topsecret"}}})
        assert "topsecret" not in str(refused.value)

    def test_two_names_of_one_key_are_refused(self) -> None:
        with pytest.raises(SettingsError, match="share one key"):
            load_settings({"auth": {"api_keys": {"a": HASH, "b": HASH}}})

    def test_a_key_of_another_tenant_than_its_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VIGIL_AUTH__API_KEYS", f'{{"old": {{"hash": "{HASH}", "tenant": "home"}}}}')
        assert whose(load_settings(), "secret") == "home"


NO_PEM = "-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----"


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ({"required": False, "api_keys": {"a": HASH}}, "nobody would be asked"),
        ({"required": False, "origins": "*"}, "any page"),
        ({"origins": "app.example"}, "no origin"),
        ({"origins": "https://app.example/page"}, "no origin"),
        ({"api_keys": {"a b": HASH}}, "other characters"),
        ({"jwt": {"key": "k" * 32}}, "issuer and an audience"),
        ({"jwt": {"key": "short", "issuer": "i", "audience": "a"}}, "32 characters"),
        ({"jwt": {"key": NO_PEM, "algorithm": "RS256", "issuer": "i", "audience": "a"}}, "no public key"),
        ({"jwt": {"key": "k" * 32, "algorithm": "none"}}, "jwt.algorithm"),
        ({"quota": {"sessions": 0}}, "quota.sessions"),
        ({"tenant_quotas": '{"a": {"session": 1}}'}, "session"),
    ],
)
def test_an_unsafe_or_wrong_auth_is_refused(auth: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings({"auth": auth})


def test_a_tenants_quota_adds_to_everyones() -> None:
    auth = {"quota": {"sessions": 9}, "tenant_quotas": '{"big": {"ticks_per_minute": 7}}'}
    quotas = load_settings({"auth": auth}).auth.quotas()
    assert (quotas.of("big").sessions, quotas.of("big").ticks_per_minute) == (9, 7)
    assert (quotas.of("other").sessions, quotas.of("other").ticks_per_minute) == (9, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com"])
def test_without_keys_only_this_machine_is_served(host: str) -> None:
    with pytest.raises(SettingsError, match=r"auth\.required is off"):
        load_settings({"host": host, "auth": {"required": False}})
    assert load_settings({"host": host, "auth": {"api_keys": {"a": HASH}}}).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.0.1", "::1", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert load_settings({"host": host}).host == host


def test_the_engines_key_is_not_shown() -> None:
    settings = Settings(engine_api_key="hidden")  # type: ignore[arg-type]
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("webhook", "words"),
    [
        ({"url": "http://example.org/x", "secret": "s" * 16}, "https"),
        ({"url": "ftp://127.0.0.1/x", "secret": "s" * 16}, "https"),
        ({"url": "https://", "secret": "s" * 16}, "https"),
        ({"url": "https://example.org/x"}, "needs a secret"),
        ({"url": "https://example.org/x", "secret": "short"}, "16 characters"),
        ({"url": "https://example.org/x", "secret": "whsec_not base64 at all!"}, "no base64"),
        ({"kinds": "response,nonsense"}, "nonsense"),
    ],
)
def test_a_webhook_must_be_safe(webhook: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings({"webhook": webhook})


def test_a_webhook_and_a_summarizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIGIL_WEBHOOK__URL", "http://127.0.0.1:9/events")
    monkeypatch.setenv("VIGIL_WEBHOOK__SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    monkeypatch.setenv("VIGIL_WEBHOOK__KINDS", "response,session_ended")
    monkeypatch.setenv("VIGIL_SUMMARIZER__PARAMS", '{"seed": 1}')
    settings = load_settings({"summarizer": {"url": "http://writer", "model": "w", "images": False}})
    assert settings.webhook.kinds == ("response", "session_ended")
    assert settings.summarizer.params == {"seed": 1}
    assert "whsec" not in str(settings.webhook)
    with pytest.raises(SettingsError, match="name of its model"):
        load_settings({"summarizer": {"url": "http://writer"}})


def test_ears(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({}).ears.model is None
    monkeypatch.setenv("VIGIL_EARS__LANGUAGE", "de")
    settings = load_settings({"ears": {"model": "whisper", "url": "http://asr:1", "partial_s": 0.0}})
    assert (settings.ears.language, settings.ears.partial_s) == ("de", 0.0)
    with pytest.raises(SettingsError, match=r"0\.5 at least"):
        load_settings({"ears": {"model": "m", "partial_s": 0.1}})
    with pytest.raises(SettingsError, match="name of its model"):
        load_settings({"ears": {"url": "http://asr:1"}})


def test_a_folder_of_sources_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"sources\.folder.*--sources-folder"):
        load_settings({"sources": {"folder": tmp_path / "none"}})
    assert load_settings({"sources": {"folder": tmp_path}}).sources.folder == tmp_path
