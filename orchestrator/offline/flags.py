"""Options of the commands that play recordings, told once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AskAtEnd = Annotated[
    bool, typer.Option("--commit", help="Of what is played: ask for an answer at the end of each recording.")
]
VoiceName = Annotated[str | None, typer.Option(help="Of what is played: a voice of the model.")]
ReferenceVoice = Annotated[
    Path | None, typer.Option(metavar="FILE.wav", help="Of what is played: a voice to take on.")
]
Tail = Annotated[float | None, typer.Option(min=0, help="With --audio: silence behind each recording, in s.")]
