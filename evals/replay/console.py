"""What a person sees while a replay runs: a progress bar, and each response as it streams.

On a terminal the line being said is redrawn above the bar and then left in the scrollback; elsewhere pieces
are written as they come, and progress as a plain line now and then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from evals.replay.drive import Sink
from evals.report.render import clock, kind_of, number, percent

PLAIN_EVERY = 50
"""Ticks between two progress lines where there is no terminal."""
STYLES = {"response": "bold", "delegate": "magenta", "failed": "red"}
# A model's text must never steer the terminal: escape and all other control characters are shown as one sign.
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """``text`` without control characters, line ends apart, and without text-direction overrides."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


class View(Sink, Protocol):
    """Who shows a run to people."""

    def frame(self, media_time_s: float) -> None:
        """A frame is about to be shown: what is said next is said at this time."""


class RunConsole:
    """Prints one run, as a context manager. ``total``: ticks that will come, if the source tells."""

    def __init__(self, console: Console, total: int | None) -> None:
        self._console = console
        self._total = total
        self._live: Live | None = None
        self._progress = Progress(
            TextColumn("{task.fields[time]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._progress.add_task("replay", total=total, time="0:00.0", figures="")
        self._saying = ""
        self._at_s = 0.0
        self._ticks = 0

    def __enter__(self) -> RunConsole:
        if self._console.is_terminal:
            self._live = Live(self._view(), console=self._console, refresh_per_second=12, transient=True)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._break_line()
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
            self._live = None

    def frame(self, media_time_s: float) -> None:
        self._at_s = media_time_s

    def delta(self, text: str) -> None:
        text = harmless(text)
        if self._live is None:
            head = "" if self._saying else f"[{clock(self._at_s)}] "
            self._console.file.write(head + text)
            self._console.file.flush()
        self._saying += text
        self._refresh()

    def tick(self, record: Mapping[str, Any]) -> None:
        kind, streamed = kind_of(record), self._saying
        self._ticks += 1
        self._break_line()
        text = harmless(str(record.get("text") or ""))
        at_s = record.get("media_time_s")
        if kind in ("response", "delegate") and (self._live is not None or not streamed) and text:
            self._line(at_s, text, STYLES[kind])
        if kind == "delegate":
            self._line(at_s, f"delegated: {harmless(str(record.get('question') or ''))}", STYLES[kind])
        if kind == "failed":
            self._line(
                at_s, f"tick {record.get('tick')} failed: {record.get('reason') or 'no reason given'}", "red"
            )
        figures = f"{number(record.get('latency_ms'), 'ms')}"
        if record.get("prompt_tokens") and record.get("cached_tokens") is not None:
            figures += f", {percent(record['cached_tokens'] / record['prompt_tokens'])} reused"
        self._progress.update(self._task, completed=self._ticks, time=clock(at_s), figures=figures)
        self._refresh()
        if self._live is None and self._ticks % PLAIN_EVERY == 0:
            of = f" of {self._total}" if self._total else ""
            self._print(Text(f"... tick {self._ticks}{of}, {clock(at_s)}, {figures}"))

    def notice(self, code: str, message: str) -> None:
        self._break_line()
        self._print(Text(f"[{code}] {harmless(message)}", style="yellow"))

    def _line(self, at_s: float | None, text: str, style: str) -> None:
        self._print(Text(f"[{clock(at_s)}] ").append(text, style=style))

    def _print(self, text: Text) -> None:
        # Soft wrap: a line stays one line in a file or a pipe.
        self._console.print(text, soft_wrap=True, highlight=False)

    def _break_line(self) -> None:
        if self._saying and self._live is None:
            self._console.file.write("\n")
            self._console.file.flush()
        self._saying = ""

    def _view(self) -> Group:
        if not self._saying:
            return Group(self._progress)
        return Group(Text(f"[{clock(self._at_s)}] ").append(self._saying, style="italic"), self._progress)

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._view())


def print_outcome(console: Console, summary: Mapping[str, Any], folder: str) -> None:
    """The run in a few lines; a run that was silent for want of a query says so."""
    actions, reasons, audit = summary["actions"], summary["reasons"], summary["audit"]
    latency = summary["latency_ms"]
    lines = [
        f"{summary['ticks']} {'tick' if summary['ticks'] == 1 else 'ticks'}: "
        f"{actions.get('response', 0)} responses, "
        f"{actions.get('delegate', 0)} delegated, {reasons.get('deduplicated', 0)} repeats held back, "
        f"{summary['statuses'].get('failed', 0)} failed",
        f"latency: median {number(latency['p50'], 'ms')}, 95 % within {number(latency['p95'], 'ms')}",
        f"prompt tokens reused: {percent(summary['reuse_ratio'])}; "
        f"as promised on {number(audit['kept_percent'], '%', 1)} of {audit['ticks']} ticks within windows",
        f"files: {folder}/{{decisions.jsonl,summary.json,report.html}}",
    ]
    if summary["ticks"] and reasons.get("gated") == summary["ticks"]:
        lines.insert(
            1, "nothing was asked, so every tick was silent: give --query, or a --persona that watches"
        )
    for line in lines:
        console.print(Text(line), soft_wrap=True, highlight=False)
