"""Packs load, inherit, and say clearly what is wrong with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from prompts.loader import PACKS, PackError, load_pack, pack_names, pack_of


@pytest.mark.parametrize("name", pack_names())
def test_every_shipped_pack_loads(name: str) -> None:
    pack = load_pack(name)
    assert pack.family == name
    assert {"default", "silent", "talkative"} <= pack.personas.keys()
    for language in pack.languages:
        assert pack.tags.silence in pack.persona("default", language)
        assert pack.phrases[language].line("time_tag", seconds="12.0") == "<12.0 seconds>"
        summary = pack.summary_prompts[language]
        assert "{" not in summary.format(start="0", end="9", language="x", target=9, query="q")
        assert "{" not in pack.solver_prompts[language].format(language="x", target=9)


def test_trained_headers_are_kept_for_the_trained_model() -> None:
    phrases = load_pack("joyvl").phrases["en"]
    assert phrases.texts["query_header"] == "[User Query (IMPORTANT — follow this instruction)]"
    assert phrases.texts["history_header"] == "[Video History]"
    assert phrases.texts["qa_header"] == "[Q&A History]"
    assert load_pack("joyvl").phrases["zh"].texts["query_header"] == phrases.texts["query_header"]


def test_base_is_inherited_and_overridden() -> None:
    base, joyvl = load_pack("generic"), load_pack("joyvl")
    assert joyvl.chunk_frames == base.chunk_frames
    assert joyvl.tags.response == "</response>"
    assert "<response>" not in joyvl.persona("default", "en")
    assert set(joyvl.tags.variants) == {
        "<silence>",
        "<response>",
        "<delegation>",
        "<delegate>",
        "</delegate>",
    }
    assert joyvl.digest != base.digest


def _copy(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    shutil.copytree(PACKS / "generic", folder)
    return folder


def test_digest_covers_every_file(tmp_path: Path) -> None:
    folder = _copy(tmp_path)
    before = load_pack(str(folder)).digest
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "summary.en.txt").write_text((folder / "summary.en.txt").read_text() + " More.")
    assert load_pack(str(other)).digest != before == load_pack("generic").digest


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("model.toml", "period_ms = 1000", "period_ms = 0", "period_ms"),
        ("model.toml", "[quirks]", "[quirk]", "quirk"),
        ("model.toml", '"<delegate>" = "<delegation>"', '"<delegate>" = "<nothing>"', "<delegate>"),
        ("model.toml", 'watch_personas = ["talkative"]', 'watch_personas = ["loud"]', "loud"),
        ("phrases.en.toml", "{seconds}", "{minutes}", "time_tag"),
        ("phrases.en.toml", "no_query =", "noquery =", "no_query"),
        ("phrases.en.toml", "no_query =", "no_query ", r"phrases\.en\.toml: "),
        ("phrases.en.toml", "no_query =", "no_query = 7 #", "a phrase is a text"),
        ("summary.en.txt", "{query}", "", "summary.en.txt"),
        ("solver.en.txt", "{target}", "few", "solver.en.txt"),
        ("phrases.en.toml", "[Question] {text}", "[Question]", "solver_question"),
        ("persona_default.en.txt", "{silence}", "{hush}", "persona_default.en.txt"),
    ],
)
def test_a_broken_pack_names_the_culprit(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    folder = _copy(tmp_path)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    with pytest.raises(PackError, match=said.replace("<", r"\<")):
        load_pack(str(folder))


def test_missing_files_and_packs(tmp_path: Path) -> None:
    folder = _copy(tmp_path)
    for name in ("persona_silent.zh.txt", "solver.zh.txt"):
        text = (folder / name).read_text()
        (folder / name).unlink()
        with pytest.raises(PackError, match=name.replace(".", r"\.")):
            load_pack(str(folder))
        (folder / name).write_text(text)
    with pytest.raises(PackError, match="known: generic"):
        load_pack("nobody")
    loop = tmp_path / "loop"
    loop.mkdir()
    (loop / "model.toml").write_text('base = "nobody"\n')
    with pytest.raises(PackError, match="nobody"):
        load_pack(str(loop))


@pytest.mark.parametrize("text", [None, 7, "=", ["time_tag"]])
def test_a_kept_pack_that_was_damaged_is_no_pack(text: object) -> None:
    kept = json.loads(load_pack("joyvl").source)
    for name in kept["files"]:
        damaged = kept | {"files": kept["files"] | {name: text}}
        if text == "=" and not name.endswith(".toml"):
            continue  # a poor text, but one
        with pytest.raises(PackError):
            pack_of(json.dumps(damaged))
