"""What went wrong, told in one line on standard error: every command of ``vigil eval`` ends so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from evals.replay.options import ReplayError
from orchestrator.exits import Exit


@contextmanager
def faults_told() -> Iterator[None]:
    """Ends the program with the exit code that an error of ours means. Others are faults of this program."""
    from evals.files import BadFile
    from evals.readers.jsonl import DatasetError
    from evals.replay.folder import BadRow
    from evals.runs.manifest import RunError
    from evals.runs.sweep import GridError
    from evals.runs.tape_reader import TapeError
    from evals.scoring.compare import NothingCommon
    from evals.scoring.folder import UnusableRun
    from orchestrator.exits import SetupError
    from orchestrator.settings import SettingsError

    try:
        yield
    except (ReplayError, SetupError) as error:
        fail(error.message, error.exit_code)
    except (
        BadFile,
        BadRow,
        DatasetError,
        GridError,
        NothingCommon,
        RunError,
        SettingsError,
        TapeError,
        UnusableRun,
    ) as error:
        fail(str(error), Exit.USAGE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}", Exit.FAILED)


def fail(message: str, code: int) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"vigil eval: {line}", err=True)
    raise typer.Exit(code)
