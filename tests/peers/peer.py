"""One genuine server as a process on loopback, and the door through which a test scripts it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.peers.environment import PeerVenv

SERVER = Path(__file__).parent / "omni" / "server.py"
READY_S, STOP_S, CALL_S = 240.0, 60.0, 60.0


class PeerNotReady(Exception):
    """The server ended, or said nothing in time; the message has the end of its log."""


class Peer:
    """:param limits: of ``duplex_session``, for instance ``max_sessions``, ``disconnect_grace_s``
    :param knobs: how its model behaves, see ``omni/script.py``
    """

    def __init__(
        self,
        venv: PeerVenv,
        family: str,
        log: Path,
        *,
        limits: Mapping[str, Any] | None = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        self.family = family
        self.log = log
        options = {"family": family, "limits": dict(limits or {}), "knobs": dict(knobs or {})}
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(venv.python), str(SERVER), json.dumps(options)],
                env=venv.environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            ready = self._ready(time.monotonic() + READY_S)
        except BaseException:
            self.stop()
            raise
        self.model = str(ready["model"])
        self.url = f"http://127.0.0.1:{ready['port']}"
        self._http = httpx.Client(base_url=self.url, timeout=CALL_S, trust_env=False)

    def _ready(self, until: float) -> dict[str, Any]:
        """The server's READY line; what else it prints goes to the log."""
        assert self._process.stdout is not None
        pending = b""
        while (left := until - time.monotonic()) > 0:
            if not select.select([self._process.stdout], [], [], left)[0]:
                break
            chunk = os.read(self._process.stdout.fileno(), 65536)
            if not chunk:
                break
            pending += chunk
            for line in pending.split(b"\n")[:-1]:
                if line.startswith(b"READY "):
                    found: dict[str, Any] = json.loads(line.removeprefix(b"READY "))
                    return found
        tail = self.log.read_text(errors="replace")[-3000:]
        raise PeerNotReady(f"{self.family} was not ready:\n{tail}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def status(self) -> dict[str, Any]:
        """``sessions``, ``sockets``, ``heard``, the last ``units``, ``aborted`` requests, live ``tasks``."""
        answer: dict[str, Any] = self._http.get("/harness/status").raise_for_status().json()
        return answer

    def latest(self) -> list[dict[str, Any]]:
        """Units of the session that was heard last, in order."""
        units: list[dict[str, Any]] = self.status()["units"]
        return [unit for unit in units if unit["session"] == units[-1]["session"]]

    def turn(self, **knobs: Any) -> None:
        """Change how the model behaves, from its next unit on."""
        self._call("knobs", knobs)

    def drop(self, session_id: str | None = None) -> int:
        """Break the connection of a session (or all) without a close frame. How many were broken."""
        return int(self._call("drop", {"session_id": session_id})["dropped"])

    def die(self, *, engine: bool = False) -> None:
        """The process ends at once, or (``engine``) only the first stage under it."""
        if engine:
            self._call("die", {"engine": True})
            return
        with contextlib.suppress(httpx.HTTPError):
            self._call("die", {})
        self._process.wait(STOP_S)

    def settle(self, seconds: float = 60.0) -> None:
        """Until no session is left: a test starts with all places free."""
        until = time.monotonic() + seconds
        while self.status()["sessions"]:
            assert time.monotonic() < until, f"sessions are left: {self.status()}"
            time.sleep(0.05)

    def stop(self) -> None:
        """TERM to this very process, then KILL."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _call(self, door: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.post(f"/harness/{door}", json=body).raise_for_status().json()
        return answer
