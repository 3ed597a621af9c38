"""Commands that ask a running service end with a word whoever answers at its address: slowly, without end, or
as something else. A key that no header can carry is told as such."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import orchestrator.session_access
import orchestrator.top_cli
from evals.load import command as load_command
from orchestrator.cli import app
from orchestrator.settings import Settings
from orchestrator.top_cli import Look, read
from tests.fakes.endless import Endless
from tests.fakes.web import Web
from tests.test_session_cli import vigil

COMMANDS = {
    "top": ("top", "--once", "--every", "0.2"),
    "engines": ("engine", "served"),
    "add": ("engine", "add", "http://127.0.0.1:9"),
    "sessions": ("session", "list"),
    "load": ("load", "--sessions", "1", "--seconds", "1"),
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator.session_access, "_ANSWER_S", 0.5)
    monkeypatch.setattr(orchestrator.top_cli, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(load_command, "ANSWER_S", 0.5)


@pytest.mark.parametrize("every_s", [0.02, 0.0], ids=["slowly", "fast"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
async def test_an_answer_without_end_ends_the_command(command: tuple[str, ...], every_s: float) -> None:
    with Endless(every_s) as url:
        told = await vigil(*command, "--server", url)
    assert told.exit_code in (1, 5) and told.output.startswith("vigil: "), told.output


@pytest.mark.parametrize("body", [b"{}", b"[1]", b'{"object": "list"}', b"<html>", b"\xff\x00"])
async def test_something_else_answers(body: bytes) -> None:
    async with Web() as site:
        site.files = dict.fromkeys(("/v1/sessions", "/v1/sessions/s", "/v1/engines", "/metrics"), body)
        for command in (("session", "list"), ("session", "show", "s"), ("engine", "served"), COMMANDS["top"]):
            told = await vigil(*command, "--server", site.url)
            assert told.exit_code == 1 and told.output.startswith("vigil: "), (command, told.output)


@pytest.mark.parametrize("period", [b'"often"', b"-5", b"1e-9", b"1e300", b"[]", b"{}"])
async def test_a_period_that_is_none_drives_no_load(period: bytes) -> None:
    async with Web() as site:
        site.files = {"/v1/models": b'{"data": [{"id": "m", "chunk_period_ms": %b}]}' % period}
        told = await vigil(*COMMANDS["load"], "--server", site.url, "--warm", "0")
    if period in (b"[]", b"{}"):
        assert told.exit_code == 0, "nothing told is a second"
    else:
        assert told.exit_code == 2 and "that is none" in told.output


def test_buckets_without_a_bound_are_left_out() -> None:
    text = 'vigil_sessions_limit 3\nvigil_x_bucket{le="%s"} 3\nvigil_x_bucket 4\n'
    assert Look(read(text % "much"), {}, 1.0).quantile("x", 0.5) is None
    assert Look(read(text % "2"), {}, 1.0).quantile("x", 0.5) == 1.0


@pytest.mark.parametrize("key", ["schl\u00fcssel", "two\nlines"])
def test_a_key_that_no_header_can_carry(key: str, tmp_path: Path) -> None:
    for command in (*COMMANDS.values(), ("talk",), ("doctor", "prefix", "s")):
        told = CliRunner().invoke(app, [*command, "--api-key", key])
        assert told.exit_code == 2 and "plain ASCII" in told.output, (command, told.output)
    for settings in ({"engine_api_key": key}, {"ears": {"api_key": key}}, {"summarizer": {"api_key": key}}):
        with pytest.raises(ValueError, match="plain ASCII"):
            Settings(data=tmp_path, **settings)
