"""``vigil doctor``: what is wrong with a session or a run, and what to do about it.

``prefix`` looks at the engine's prefix cache: what each tick could have reused by the bytes of its prompt
(the promise), and what the engine says it reused (the fact).
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

import orjson
import typer
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from evals.replay.folder import BadRow, read_rows
from evals.shapes import OPEN, fault_of, row_fault
from evals.stats import Row, asked_engine
from memory.tally import tick_row
from orchestrator.exits import Exit
from orchestrator.session_cli import ApiKey, Data, Server, Tenant

SHOWN = 20
"""Shortfalls that are listed; the others are counted."""


class _Entry(TypedDict):
    """A line of an exported session."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    kind: str
    data: dict[str, Any]


class _Metrics(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    row: NotRequired[dict[str, Any] | None]


class _Answered(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    metrics: NotRequired[_Metrics | None]


_ENTRY, _ANSWERED = TypeAdapter[Any](_Entry), TypeAdapter[Any](_Answered)

app = typer.Typer(name="doctor", help="Find out what is wrong.", no_args_is_help=True, add_completion=False)


@app.callback()
def doctor() -> None:
    """Find out what is wrong, and what to do about it."""


@app.command()
def prefix(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SESSION|RUN",
            help="A session's id or name; or the folder of a run, its decisions.jsonl, an exported session.",
        ),
    ],
    server: Server = None,
    api_key: ApiKey = None,
    data: Data = None,
    tenant: Tenant = "local",
) -> None:
    """Promise against fact of the prefix cache, per window, with the reason for each shortfall.

    Exit codes: 0 every promise was kept, 1 some were not, 2 there is nothing to look at.
    """
    from orchestrator.session_access import AccessError
    from orchestrator.session_cli import access_of

    try:
        if server is None and Path(what).exists():
            rows = list(rows_of(Path(what)))
        else:
            rows = list(access_of(server, api_key, data, tenant).ticks(what))
    except AccessError as error:
        typer.echo(f"vigil: {error.message}", err=True)
        raise typer.Exit(error.exit_code) from error
    except (OSError, ValueError, tarfile.TarError) as error:
        typer.echo(f"vigil: {what} is no run and no exported session: {error}", err=True)
        raise typer.Exit(Exit.USAGE) from error
    diagnosis = diagnose(rows)
    for line in report(diagnosis):
        typer.echo(line)
    raise typer.Exit(Exit.FAILED if diagnosis.shortfalls else Exit.OK if diagnosis.judged else Exit.USAGE)


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of a run's folder, of a ``decisions.jsonl``, or of an exported session."""
    if path.is_dir():
        path = path / "decisions.jsonl"
    if not tarfile.is_tarfile(path):
        yield from read_rows(path)
        return
    with tarfile.open(path) as tar:
        for member in tar:
            facts = tar.extractfile(member) if member.name.startswith("facts/") else None
            for number, line in enumerate(facts or (), 1):
                if (row := _row_of(orjson.loads(line), f"{member.name}:{number}")) is not None:
                    yield row


def _row_of(entry: Any, place: str) -> Row | None:
    """The row of a fact that holds one. Raises ``BadRow``."""
    if (wrong := fault_of(_ENTRY, entry)) is not None:
        raise BadRow(f"{place}: no fact: {wrong}")
    if entry["kind"] != "tick_answered":
        return None
    if (wrong := fault_of(_ANSWERED, entry["data"])) is not None:
        raise BadRow(f"{place}: data.{wrong}")
    row = tick_row(entry["data"])
    if row and (wrong := row_fault(row)) is not None:
        raise BadRow(f"{place}: data.metrics.row: {wrong}")
    return row or None


# --- the finding ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A tick that reused less than promised.

    :param kind: ``evicted``, or the section where the bytes differ
    :param place: ``turn`` and ``byte`` of the first difference; ``None`` where the bytes are the same
    :param missing: promised tokens that were not in the cache
    """

    tick: int
    media_time_s: float
    window: int | None
    kind: str
    place: tuple[int, int] | None
    missing: int


@dataclass(slots=True)
class Window:
    """One window: ticks that the engine answered, and their tokens."""

    window: int | None
    ticks: int = 0
    prompt: int = 0
    promised: int = 0
    cached: int = 0
    kept: int = 0
    short: int = 0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """
    :param asked: ticks that the engine answered
    :param judged: of them those with a promise and with a count of the engine
    """

    windows: tuple[Window, ...]
    shortfalls: tuple[Shortfall, ...]
    asked: int
    judged: int
    counted: int


def diagnose(rows: Iterable[Row]) -> Diagnosis:
    windows: dict[int | None, Window] = {}
    shortfalls: list[Shortfall] = []
    asked = judged = counted = 0
    for row in rows:
        if not asked_engine(row):
            continue
        asked += 1
        cached, promised = row.get("cached_tokens"), row.get("expected_cached_tokens")
        counted += cached is not None
        if cached is None or promised is None:
            continue
        judged += 1
        number = row.get("window")
        window = windows.setdefault(number, Window(number))
        window.ticks += 1
        window.prompt += row["prompt_tokens"]
        window.promised += promised
        window.cached += cached
        window.kept += min(cached, promised)
        if row.get("shortfall"):
            window.short += 1
            shortfalls.append(_shortfall(row, promised - cached))
    return Diagnosis(tuple(windows.values()), tuple(shortfalls), asked, judged, counted)


def _shortfall(row: Row, missing: int) -> Shortfall:
    kind, _, rest = str(row["shortfall"]).partition("/")
    turn, _, byte = rest.partition("/")
    place = (int(turn), int(byte)) if byte else None
    return Shortfall(
        int(row["tick"]), float(row.get("media_time_s") or 0.0), row.get("window"), kind, place, missing
    )


# --- in words -----------------------------------------------------------------------------------------------


def report(found: Diagnosis) -> Iterator[str]:
    """Lines for people."""
    if not found.asked:
        yield "No tick was answered by an engine: there is nothing to compare."
        return
    if not found.counted:
        yield f"The engine answered {found.asked} ticks and never said how much it reused."
        yield "Remedy: start vllm serve with --enable-prompt-tokens-details and --enable-prefix-caching."
        return
    if not any(window.promised for window in found.windows):
        yield f"Nothing was promised in {found.judged} ticks: the prefix audit was off."
        yield (
            "Remedy: run `vigil engine check URL`; the audit needs an engine whose prefix cache is on, whose "
            "block size is known and which reports cached tokens."
        )
        return
    yield from _windows(found)
    promised = sum(window.promised for window in found.windows)
    kept = sum(window.kept for window in found.windows)
    yield ""
    if not found.shortfalls:
        yield f"Every promise was kept: {kept} tokens in {found.judged} ticks."
        return
    short = len(found.shortfalls)
    yield f"{short} of {found.judged} ticks fell short; {kept} of {promised} tokens were kept."
    for each in found.shortfalls[:SHOWN]:
        yield f"  tick {each.tick} at {each.media_time_s:g} s, window {each.window}: {_cause(each)}"
    if short > SHOWN:
        yield f"  and {short - SHOWN} more"
    yield from _remedies(found)


def _windows(found: Diagnosis) -> Iterator[str]:
    widths = (6, 6, 10, 10, 10, 7, 6)

    def line(*cells: object) -> str:
        return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))

    yield line("window", "ticks", "prompt", "promised", "cached", "kept", "short")
    for w in found.windows:
        kept = f"{100 * w.kept / w.promised:.1f}%" if w.promised else "-"
        number = "-" if w.window is None else w.window
        yield line(number, w.ticks, w.prompt, w.promised, w.cached, kept, w.short)


def _cause(each: Shortfall) -> str:
    if each.place is None:
        return f"{each.missing} tokens {each.kind}"
    turn, byte = each.place
    where = f"section {each.kind}" if turn < 0 else f"section {each.kind} of turn {turn}"
    return f"{each.missing} tokens: {where} differs from byte {byte} on"


def _remedies(found: Diagnosis) -> Iterator[str]:
    yield ""
    if any(each.place is None for each in found.shortfalls):
        yield (
            "Remedy for evicted: the bytes were the same, the engine had dropped their keys. It was "
            "restarted, or its KV cache is too small for what runs on it: give it more memory "
            "(--gpu-memory-utilization, --kv-cache-memory-bytes), fewer sessions (limits.sessions), or keep "
            "other clients off it. `vigil engine check URL` shows its size."
        )
    if any(each.place is not None for each in found.shortfalls):
        yield (
            "Remedy for a section that differs: none of yours. Within a window the bytes must only grow, so "
            "this is a fault of Vigil: please report it with `vigil session export SESSION`."
        )
