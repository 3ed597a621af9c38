"""What a person sees while a run goes on: how many clips and ticks, and each clip as it ends."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from evals.readers.clip import Clip
from evals.replay.console import View
from evals.report.render import clock, kind_of, number


class RunProgress:
    """A bar over clips on a terminal, a line a clip everywhere; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("clips"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("clips", total=None, figures="")
        self._open: dict[str, str] = {}
        self._ticks = 0

    def __enter__(self) -> RunProgress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def begins(self, clips: int, finished: int) -> None:
        self._bars.update(self._task, total=clips, completed=finished)
        if finished:
            self._say(f"{finished} of {clips} clips are finished already", "dim")

    def view(self, clip: Clip, ticks: int | None) -> View:
        self._open[clip.id] = ""
        return _ClipView(self, clip.id, ticks)

    def ends(self, clip: Clip, summary: Mapping[str, Any]) -> None:
        self._open.pop(clip.id, None)
        line = f"{clip.id}: {summary['outcome']}, {_figures(summary)}, {number(summary['wall_s'], 's', 1)}"
        complete = summary["outcome"] == "complete"
        if summary["error"]:
            line += f": {summary['error']['message']}"
        self._say(line, "" if complete else "red")
        self._bars.update(self._task, advance=complete)

    def ticked(self, name: str, place: str) -> None:
        self._ticks += 1
        self._open[name] = place
        places = ", ".join(f"{clip} {at}" for clip, at in list(self._open.items())[:3])
        self._bars.update(self._task, figures=f"{self._ticks} ticks; {places}")

    def notice(self, name: str, text: str) -> None:
        self._say(f"{name}: {text}", "yellow")

    def _say(self, text: str, style: str) -> None:
        self._console.print(Text(text, style=style), soft_wrap=True, highlight=False)


def _figures(summary: Mapping[str, Any]) -> str:
    if "said_s" in summary:
        said, first = summary["said_s"], summary["first_audio_ms"]["p50"]
        return (
            f"{summary['units']} units, {summary['responses']} responses of {number(said, 's', 1)}, "
            f"median {number(first, 'ms')} to first sound"
        )
    actions, latency = summary.get("actions", {}), summary.get("latency_ms", {})
    return (
        f"{summary.get('ticks', 0)} ticks, "
        f"{actions.get('response', 0)} responses, {actions.get('delegate', 0)} delegated, "
        f"median {number(latency.get('p50'), 'ms')}"
    )


class _ClipView:
    def __init__(self, progress: RunProgress, name: str, ticks: int | None) -> None:
        self._progress = progress
        self._name = name
        self._ticks = ticks
        self._done = 0

    def frame(self, media_time_s: float) -> None:
        """Ticks tell enough."""

    def delta(self, text: str) -> None:
        """Ticks tell enough."""

    def tick(self, record: Mapping[str, Any]) -> None:
        self._done += 1
        of = f"/{self._ticks}" if self._ticks else ""
        self._progress.ticked(self._name, f"{self._done}{of}")
        if kind_of(record) == "failed":
            at = clock(record.get("media_time_s"))
            self._progress.notice(self._name, f"the tick at {at} failed: {record.get('reason')}")

    def notice(self, code: str, message: str) -> None:
        if not code.startswith("delegation_"):
            self._progress.notice(self._name, f"{code}: {message}")
