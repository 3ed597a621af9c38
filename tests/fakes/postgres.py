"""A private PostgreSQL for tests: Debian's binaries, a data folder in /tmp, a Unix socket, no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg

INSTALL_HINT = (
    "no PostgreSQL binaries: install Debian's package `postgresql` (or set PG_BIN to its bin folder)"
)


def find_binaries() -> Path | None:
    """The folder with ``initdb`` and ``pg_ctl``; the newest version of Debian's, or ``$PG_BIN``."""
    if given := os.environ.get("PG_BIN"):
        return Path(given)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda p: int(p.parts[-3]))
    return found[-1].parent if found else None


class PrivatePostgres:
    """A server that lives inside a ``with`` block. As root it runs as the user ``postgres``.

    :param durable: False skips fsync, which only the loss of the whole machine could tell apart
    """

    def __init__(self, binaries: Path, *, durable: bool = False) -> None:
        self._binaries = binaries
        self._durable = durable
        self._user = "postgres" if os.geteuid() == 0 else None

    def __enter__(self) -> PrivatePostgres:
        # Not below pytest's folder: its parents are closed to the user postgres.
        self.folder = Path(tempfile.mkdtemp(prefix="vigil-pg-", dir="/tmp"))
        if self._user:
            shutil.chown(self.folder, self._user)
        self._leash = self._start_leash()
        try:
            self._run("initdb", "-D", self._data, "-U", "vigil", "-A", "trust", "-E", "UTF8", "--no-sync")
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def start(self) -> None:
        """Start and wait until it answers."""
        options = f"-k {self.folder} -c listen_addresses='' -c shared_buffers=32MB"
        if not self._durable:
            options += " -c fsync=off"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", self._data, "-l", log, "-o", options, "-w", "-t", "60", "start")

    def stop(self) -> None:
        """Stop at once, as a crash would."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def empty_database(self) -> str:
        """Empty the one database and return its URL; who used it before must have closed it.

        Far cheaper than creating a database for each test.
        """
        url = f"postgresql://vigil@/postgres?host={self.folder}"
        with psycopg.connect(url, autocommit=True, options="-c lock_timeout=10s") as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        return url

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _start_leash(self) -> subprocess.Popen[bytes]:
        """A shell that cleans up when its input closes: at the end of the block, or of a killed test run."""
        script = 'read _; "$0" -D "$1/data" -m immediate stop >/dev/null 2>&1; rm -rf "$1"'
        return subprocess.Popen(
            ["sh", "-c", script, str(self._binaries / "pg_ctl"), str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            **self._identity(),
        )

    def _end(self) -> None:
        self._leash.communicate(timeout=90)

    def _identity(self) -> dict[str, Any]:
        return {"user": self._user, "group": self._user, "extra_groups": []} if self._user else {}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            **self._identity(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=90,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr[-2000:]}")
