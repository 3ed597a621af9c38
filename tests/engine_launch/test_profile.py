"""Profiles: what is shipped loads, and every mistake in one is told with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_launch import profile as profiles
from engine_launch.errors import ProfileError
from engine_launch.profile import base_name, load_profile, profile_names
from prompts.loader import load_pack

WATCHING = [name for name in profile_names() if load_profile(name).image_cache]


@pytest.mark.parametrize("name", WATCHING)
def test_every_shipped_profile_of_a_watching_model_serves_replay(name: str) -> None:
    profile = load_profile(name)
    arguments = profile.arguments("0.32.0")
    for flag in (
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--max-model-len",
        "--limit-mm-per-prompt",
        "--enable-scale-out",
    ):
        assert flag in arguments, flag
    assert profile.priority
    share = profile.flags.get("long-prefill-token-threshold", profile.flags.get("max-num-batched-tokens"))
    assert isinstance(share, int) and share <= 1024, "what is read in beside a tick holds it up for no longer"
    assert profile.image_cache is not None
    assert profile.image_cache.kind == ("lru" if profile.engine == "gpu" else "shm")
    limit = json.loads(arguments[arguments.index("--limit-mm-per-prompt") + 1])
    assert limit["image"] >= 108, "a chunk of 100 frames and its overlap fit"
    assert not any("://" in value for value in profile.environment.values())


def test_a_model_of_words_has_neither_family_nor_image_cache() -> None:
    profile = load_profile("text-cpu")
    assert (profile.family, profile.image_cache, profile.model.builder) == (None, None, "smollm2")
    assert profile.port != load_profile("standin-cpu").port, "both run at a time"


def test_joyvl_has_a_variant_for_each_size_of_card() -> None:
    names = [name for name in profile_names() if name.startswith("joyvl")]
    assert {"joyvl:24gb", "joyvl:48gb", "joyvl:80gb"} <= set(names)
    assert load_profile("joyvl:24gb").flags["quantization"] == "fp8"
    assert "quantization" not in load_profile("joyvl:24gb-awq").flags
    assert load_profile("joyvl:80gb").model.path == "jdopensource/JoyAI-VL-Interaction"


@pytest.mark.parametrize("variant", ["24gb", "24gb-awq", "48gb", "80gb"])
def test_the_new_tokens_of_a_tick_fit_a_cuda_graph(variant: str) -> None:
    """vLLM's own list ends at twice ``max-num-seqs``, less than the picture of a tick has."""
    profile = load_profile(f"joyvl:{variant}")
    pack = load_pack(profile.family or "")
    tick = pack.pixels.max // pack.pixels.multiple**2 + 32  # its words beside its picture
    sizes = profile.flags["compilation-config"]["cudagraph_capture_sizes"]  # type: ignore[index]
    assert sizes == sorted(set(sizes)) and max(sizes) >= tick
    assert any(tick <= size <= 1.25 * tick for size in sizes), "a step is filled up to the next size"
    assert all(size in sizes for size in (1, 2, 4, 8)), "and decoding has graphs as before"


@pytest.mark.parametrize(
    ("memory", "variant"), [(23.6, "24gb"), (44.9, "48gb"), (39.6, "48gb"), (79.6, "80gb"), (139.0, "80gb")]
)
def test_the_largest_variant_that_fits_the_card_is_picked(
    monkeypatch: pytest.MonkeyPatch, memory: float, variant: str
) -> None:
    monkeypatch.setattr(profiles, "gpu_memory_gib", lambda: memory)
    assert load_profile("joyvl").variant == variant


@pytest.mark.parametrize(("memory", "words"), [(None, "none was found"), (11.0, "fits a GPU of 11 GiB")])
def test_no_card_or_a_small_one_is_said(
    monkeypatch: pytest.MonkeyPatch, memory: float | None, words: str
) -> None:
    monkeypatch.setattr(profiles, "gpu_memory_gib", lambda: memory)
    with pytest.raises(ProfileError, match=words):
        load_profile("joyvl")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("joyvl:96gb", "Its variants"),
        ("standin-cpu:24gb", "has no variants"),
        ("stand-in-cpu", "Did you mean standin-cpu"),
        ("nowhere/own.toml", "Profiles: "),
    ],
)
def test_a_wrong_name_says_what_there_is(name: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        load_profile(name)


def own(tmp_path: Path, text: str) -> str:
    path = tmp_path / "own.toml"
    path.write_text(text)
    return str(path)


GOOD = """
summary = "mine"
family = "joyvl"
engine = "gpu"
port = 9000
[model]
path = "/models/mine"
served_name = "mine"
[image_cache]
kind = "lru"
mib = 512
[deadlines]
boot_s = 10
warmup_s = 10
"""


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    profile = load_profile(own(tmp_path, GOOD + "[flags]\nfoo = false\nbar = 3\n"))
    assert profile.name == profile.title == "own"
    assert profile.arguments("0.32.0") == ["--no-foo", "--bar", "3"]
    assert profile.changed(port=9001).port == 9001


def test_flags_of_newer_engines_are_left_out_for_older_ones(tmp_path: Path) -> None:
    later = '[[flags_since]]\nversion = "0.32"\nflags = { new = true }\n'
    profile = load_profile(own(tmp_path, GOOD + later))
    assert profile.arguments("0.25.1") == []
    assert profile.arguments("0.32.0") == profile.arguments("1.0") == ["--new"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("summary = ", "not valid TOML"),
        (GOOD.replace("9000", "90000"), "port"),
        (GOOD.replace('"lru"', '"disk"'), "image_cache.kind"),
        (GOOD.replace("mib = 512", ""), "image_cache.mib"),
        (GOOD.replace('family = "joyvl"\n', ""), "family"),
        (GOOD.replace('[image_cache]\nkind = "lru"\nmib = 512\n', ""), "image_cache go together"),
        (GOOD + "colour = 3\n", "deadlines.colour"),
        (GOOD.replace('path = "/models/mine"\n', ""), "give one of path, shipped, builder and ask"),
        (GOOD + '[[flags_since]]\nversion = "new"\nflags = {}\n', "not a version"),
    ],
)
def test_a_fault_in_a_profile_names_its_place(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(ProfileError, match=place):
        load_profile(own(tmp_path, text))


def test_names_of_instances() -> None:
    assert [base_name(n) for n in ("joyvl", "joyvl:24gb", "/x/own.toml")] == ["joyvl", "joyvl", "own"]
