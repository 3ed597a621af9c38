"""Whatever becomes of a run's files, whoever reads them says which one is wrong, and never breaks.

A key goes, a value becomes another one, a line is cut, lost or doubled: every reader of the folder either
does without it, or tells of it by an error of ours that names the file.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evals.doctor import diagnose
from evals.doctor import report as diagnosed
from evals.files import BadFile, write_json
from evals.readers.jsonl import DatasetError
from evals.replay.folder import BadRow, read_rows
from evals.runs.audit import AUDIT, decisions_of, wrong_decisions
from evals.runs.clips import ClipFolder
from evals.runs.export import export
from evals.runs.manifest import RunError, differences, read_manifest, read_taped
from evals.runs.reporting import report
from evals.runs.rerun import finished_clips, rerun
from evals.runs.tape_reader import TapeError
from evals.scoring.compare import NothingCommon, compare, tables_of
from evals.scoring.folder import UnusableRun, read_run, read_scores, write_scores
from evals.scoring.judge import VerdictFile
from evals.scoring.scores import cases_of, scores_of
from evals.scoring.tables import score_tables
from tests.evals.runs import test_native
from tests.evals.runs.stand import clip, watch
from tests.fakes.engine import FakeEngine, Fault, Seen, of_kind
from tests.fakes.solver import FakeSolver
from tests.fakes.speaker import ScriptedSpeaker

pytestmark = pytest.mark.timeout(300)

OURS = (BadFile, BadRow, DatasetError, NothingCommon, OSError, RunError, TapeError, UnusableRun)
ONE_RUN = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
OTHERS: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 2**63, 1.5, -1e300, "", "x", "\x00/../..", [], [None], {}, {"a": 1}]
)
BYTES = st.sampled_from([b"", b"{", b"[]\n", b"null\n", b"\xff\xfe\n", b'{"t": 1}\n', b"{}\n"])


def says(seen: Seen) -> str:
    if seen.tick == 5:
        return "</response> Wait </delegation> What is it?"
    return "</response> Sight." if seen.tick % 4 == 2 else "</silence>"


async def ticked(run: Path) -> None:
    """Two clips of a model that is asked tick by tick, with all that a tape can hold."""
    queries = [
        {"id": "a", "at_s": 0, "text": "First?", "until_s": 5, "skill": "alert"},
        {"id": "b", "at_s": 6, "text": "Second?"},
    ]
    slots = [
        {"id": "s1", "query": "a", "kind": "alert", "start_s": 2.0, "end_s": 4.0},
        {"id": "s2", "query": "b", "kind": "answer", "start_s": 6.0, "end_s": 9.0, "accepted": ["sight"]}
        | {"judging": "judge", "evidence_s": 1.0, "evidence_end_s": 2.0},
    ]
    async with FakeEngine(says) as engine, FakeSolver(["A heron."]) as solver:
        engine.faults.append(Fault(status=500, when=of_kind("decide"), times=1))
        named = [{"name": "s", "url": solver.url, "model": solver.model}]
        clips = [clip(name, 14, queries=queries, slots=slots) for name in ("one", "two")]
        assert (await watch(run, engine, clips, solvers=named)).word == "complete"


async def heard(run: Path) -> None:
    """One clip of a full-duplex model."""
    media = run.parent / "media"
    test_native.media.__wrapped__(run.parent)  # the files that its tests play
    asked = [{"id": "q1", "at_s": 1.5, "text": "What?"}]
    async with test_native.engine() as talker:
        clips = [test_native.clip("one", queries=asked)]
        outcome = await test_native.watch(run, media, talker, clips, speaker=ScriptedSpeaker())
        assert outcome.word == "complete"


def finish(run: Path) -> None:
    """Scored, judged, audited, with its page."""
    file = VerdictFile(run / "judge.jsonl")
    told = {"model": "m", "temperature": 0.0, "prompt_sha256": "x"}
    for case in cases_of(read_run(run)):
        file.add(case, True, "{}", told)
    scores = scores_of(read_run(run), file.verdicts(told), told)
    write_scores(run, scores)
    counts = dict.fromkeys(("decisions", "sure", "faulty", "held"), 1)
    write_json(run / AUDIT, {"record": scores["record"], "margin": 0.1, "findings": [], **counts})
    report(run)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for make in (ticked, heard):
        run = tmp_path_factory.mktemp(make.__name__) / "run"
        asyncio.run(make(run))
        finish(run)
        made[make.__name__] = run
    return made


# --- damage -------------------------------------------------------------------------------------------------


def files(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.suffix in (".json", ".jsonl") or p.name == "pack.txt")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value, without the items of long lists."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:3]):
            yield from places(inner, (*path, number))


def changed(value: Any, path: tuple[Any, ...], *, to: list[Any]) -> Any:
    """A copy with another value at that place; ``to``: that value, or nothing where it goes."""
    if not path:
        return to[0]
    copy = value.copy()
    if len(path) == 1 and not to:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], to=to)
    return copy


def damaged(data: st.DataObject, path: Path) -> bytes:
    """The content of a file after something happened to it."""
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1))
    match data.draw(st.sampled_from(["value", "value", "value", "bytes", "cut", "lost", "doubled"])):
        case "bytes":
            return b"".join([*lines[:at], data.draw(BYTES), *lines[at:]])
        case "cut":
            return whole[: data.draw(st.integers(0, len(whole)))]
        case "lost":
            return b"".join([*lines[:at], *lines[at + 1 :]])
        case "doubled":
            return b"".join([*lines[: at + 1], *lines[at:]])
    value = orjson.loads(lines[at] if path.suffix == ".jsonl" else whole)
    place = data.draw(st.sampled_from(list(places(value))))
    gone = bool(place) and data.draw(st.booleans())
    told = orjson.dumps(changed(value, place, to=[] if gone else [data.draw(OTHERS)]))
    return told if path.suffix != ".jsonl" else b"".join([*lines[:at], told + b"\n", *lines[at + 1 :]])


@contextmanager
def in_place_of(path: Path, content: bytes) -> Iterator[None]:
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(before)


# --- readers ------------------------------------------------------------------------------------------------


def pages(run: Path, out: Path) -> None:
    report(run)


def scores(run: Path, out: Path) -> None:
    file = VerdictFile(run / "judge.jsonl")
    score_tables(scores_of(read_run(run), file.verdicts(), file.settings()))


def compares(run: Path, out: Path) -> None:
    tables_of(compare({"a": read_scores(run), "b": read_scores(run)}))


def exports(run: Path, out: Path) -> None:
    export(run, out)


def audits(run: Path, out: Path) -> None:
    read_taped(run)
    wrong = wrong_decisions(read_scores(run))
    for name in finished_clips(run):
        decisions_of(run, name, 0, wrong, every=True)


def goes_on(run: Path, out: Path) -> None:
    manifest = read_manifest(run)
    differences(manifest, manifest)
    for name in ("one", "two"):
        ClipFolder(run, clip(name, 14)).finished({"video": None, "sounds": []})


def diagnoses(run: Path, out: Path) -> None:
    list(diagnosed(diagnose(read_rows(run / "clips" / "one" / "decisions.jsonl"))))


def repeats(run: Path, out: Path) -> None:
    asyncio.run(rerun(run, out, lambda name, differ: None))


READERS: dict[str, Callable[[Path, Path], None]] = {
    each.__name__: each for each in (pages, scores, compares, exports, audits, goes_on, diagnoses, repeats)
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["ticked", "heard"])
@ONE_RUN
@given(data=st.data())
def test_every_reader_says_what_is_wrong(
    runs: dict[str, Path], tmp_path: Path, kind: str, reader: str, data: st.DataObject
) -> None:
    run, out = runs[kind], tmp_path / "out"
    path = data.draw(st.sampled_from(files(run)))
    shutil.rmtree(out, ignore_errors=True)
    made_anew = run / "scores.json"
    with in_place_of(made_anew, made_anew.read_bytes()), in_place_of(path, damaged(data, path)):
        try:
            READERS[reader](run, out)
        except OURS as error:
            assert str(error), "it is told in words"


def test_what_is_told_names_the_file_and_the_key(runs: dict[str, Path], tmp_path: Path) -> None:
    run = runs["ticked"]
    for name, place, reader, told in (
        ("run.json", ("pack", "family"), pages, r"run\.json: pack\.family: Field required"),
        ("run.json", ("engine", "model"), repeats, r"run\.json: engine\.model: Field required"),
        ("clips/one/summary.json", ("outcome",), scores, r"one/summary\.json: outcome: Field required"),
        ("clips/one/record.json", ("pictures",), repeats, r"one/record\.json: pictures: Field required"),
        ("clips/one/clip.json", ("queries", 0, "text"), scores, r"one/clip\.json: queries\.0\.text: Field"),
        ("audit.json", ("sure",), pages, r"audit\.json: sure: Field required; vigil eval audit"),
        ("scores.json", ("groups",), compares, r"scores\.json was changed since it was written: vigil eval"),
    ):
        path = run / name
        value = changed(orjson.loads(path.read_bytes()), place, to=[])
        with in_place_of(path, orjson.dumps(value) + b"\n"), pytest.raises(OURS, match=told):
            reader(run, tmp_path / "out")
    for name, key, to, told in (
        ("decisions.jsonl", "tick", ["x"], r"one/decisions\.jsonl:1: no row of a run: tick: Input should be"),
        ("tape.jsonl", "t", [], r"one/tape\.jsonl:1: no line of a tape: t: Field required"),
    ):
        path = run / "clips" / "one" / name
        first, *rest = path.read_bytes().splitlines(keepends=True)
        line = orjson.dumps(changed(orjson.loads(first), (key,), to=to)) + b"\n"
        with in_place_of(path, b"".join([line, *rest])), pytest.raises(OURS, match=told):
            pages(run, tmp_path)
