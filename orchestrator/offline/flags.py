"""Options of the commands that play recordings, told once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AskAtEnd = Annotated[
    bool, typer.Option("--commit", help="With --audio: ask for an answer at the end of each recording.")
]
VoiceName = Annotated[str | None, typer.Option(help="With --audio: a voice of the model.")]
ReferenceVoice = Annotated[
    Path | None, typer.Option(metavar="FILE.wav", help="With --audio: a voice to take on.")
]
Tail = Annotated[float | None, typer.Option(min=0, help="With --audio: silence behind each recording, in s.")]
