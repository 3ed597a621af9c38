"""Commands of docs/operations.md: each one exists with the options that are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import typer

from orchestrator.cli import app

DOCS = Path(__file__).parents[1] / "docs"
COMMANDS = [
    line
    for block in re.findall(r"^```\n(.*?)^```", (DOCS / "operations.md").read_text(), re.M | re.S)
    for line in block.splitlines()
    if line.startswith("vigil ")
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_as_it_is_written(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command, info_name="vigil")
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None, name
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.parse_args(context, words)


def test_there_are_some() -> None:
    assert len(COMMANDS) > 15
