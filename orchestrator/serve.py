"""``vigil serve``: the application on a port, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from asyncio import run
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import uvicorn

from orchestrator.app import open_core
from orchestrator.ears_setup import open_ears
from orchestrator.exits import Exit, SetupError
from orchestrator.http_app import make_app
from orchestrator.native_setup import NativeEngines, native_family, prepare_native
from orchestrator.replay_engines import Engines, prepare_engines
from orchestrator.server import Server, server_config
from orchestrator.settings import Settings

with suppress(ImportError):  # not made for every platform
    from uvloop import run

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SWITCH_S = 0.0005
"""How long a thread of the store or of the decoder waits for its turn: a tick waits for several of them."""
_COLLECT_AFTER = (2_000, 5, 40)
"""Objects, then collections of the younger generation. All sessions wait for a collection, so the usual ones
look at little; what lives long, and ended sessions do, is looked at as a whole every minute or two of a full
house."""


def serve(settings: Settings) -> Exit:
    """Blocks until SIGINT or SIGTERM, then drains.

    :raises SetupError: it can't start
    """
    _log(settings.log_level)
    if not settings.auth.usable:
        raise SetupError(
            "callers need a key, and none is set: make one with `vigil key NAME`, "
            "or serve this machine alone with --no-auth-required",
            "no_api_keys",
            Exit.USAGE,
        )
    settings = settings.model_copy(update={"data": _folder(settings.data)})
    listener = _listen(settings.host, settings.port)
    family = native_family(settings)
    engines = prepare_native(settings, family, _tell) if family else prepare_engines(settings, _tell)
    try:
        return run(_run(settings, engines, listener))
    finally:
        engines.stop()


class _Server(Server):
    """Ends in order at the first signal, at once at the second; the process then exits as if it had ended.

    :param on_exit: called at a signal, before anything is ended
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Callable[[], Awaitable[None]],
        on_start: Callable[[], None],
        on_exit: Callable[[], None],
    ) -> None:
        super().__init__(config, drain)
        self._on_start = on_start
        self._on_exit = on_exit

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_exit()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


async def _run(settings: Settings, engines: Engines | NativeEngines, listener: socket.socket) -> Exit:
    ears = await open_ears(settings, hears=not isinstance(engines, Engines))
    core = await open_core(settings, engines, durable=True, ears=ears)
    assert core.records is not None
    config = server_config(make_app(core), drain_s=settings.timeouts.drain_s)
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    # Said when it is so: whoever reads the line may connect.
    offer = core.track.offer
    said = f"serving {offer.model} ({offer.family}) on http://{shown}:{port}"
    if offer.voice:
        asked = "" if "audio" in offer.defaults.modalities else " to sessions that ask for audio"
        _tell(f"answers are spoken{asked}: {offer.voice}")
    server = _Server(config, core.drain, lambda: _tell(said), core.records.stop_readers)
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()  # modules and schemas stay: no collection has to look at them again
    gc.set_threshold(*_COLLECT_AFTER)
    await server.serve(sockets=[listener])
    return Exit.OK if server.started else Exit.FAILED


def _listen(host: str, port: int) -> socket.socket:
    """Bound before the engine is touched, so that a taken port is told at once."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With its protocol named, asyncio sends small writes at once; else each event would wait for an ack.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        why = error.strerror or str(error)
        raise SetupError(f"can't listen on {host}:{port}: {why}", "address_unusable", Exit.USAGE) from error
    return listener


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"can't use the data folder {path}: {error.strerror}", "data_unusable", Exit.USAGE
        ) from error
    return path.resolve()


def _log(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # uvicorn would tell of each handshake, with what its address asks for.
    for noisy in ("httpx", "httpcore", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _tell(line: str) -> None:
    sys.stderr.write(f"vigil: {line}\n")
    sys.stderr.flush()
