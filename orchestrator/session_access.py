"""Sessions for commands: of a running service over HTTP, or straight from a data folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import httpx
import orjson

from bridges.answers import answered_now
from memory.store.errors import StoreError
from memory.store.store import Store
from orchestrator.api.public_facts import public_fact
from orchestrator.directory import Directory
from orchestrator.exits import Exit
from orchestrator.folder_lock import FolderInUse, FolderLock
from orchestrator.runtime.clock import SystemClock
from orchestrator.tail import Bells
from orchestrator.wire.errors import VigilError

T = TypeVar("T")
Record = Mapping[str, Any]
Take = Callable[[bytes], object]

_PAGE = 200
_CONNECT_S = 5.0
_ANSWER_S = 60.0
_MOST = 64 * 2**20


class AccessError(Exception):
    """:param message: what is wrong and what to change"""

    def __init__(self, message: str, exit_code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


class SessionAccess(Protocol):
    """By id or by the tenant's own name. All raise ``AccessError``."""

    def sessions(self) -> Iterator[Record]:
        """Newest first."""

    def about(self, name: str) -> Record: ...

    def memory(self, name: str) -> Record: ...

    def ticks(self, name: str) -> Iterator[Record]:
        """The rows of its decisions so far, oldest first."""

    def export(self, name: str, take: Take) -> None:
        """The session's tar, in pieces."""

    def delete(self, name: str) -> str:
        """Returns its id."""


class ServerAccess:
    """:param url: root of a service"""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._url = url
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
            trust_env=False,
        )

    def sessions(self) -> Iterator[Record]:
        after: dict[str, Any] = {}
        while True:
            page = self._json("GET", "/v1/sessions", has="has_more", params={"limit": _PAGE, **after})
            yield from page["data"]
            if not page["has_more"]:
                return
            after = {"after": page["data"][-1]["id"]}

    def about(self, name: str) -> Record:
        return self._json("GET", f"{_path(name)}")

    def memory(self, name: str) -> Record:
        return self._json("GET", f"{_path(name)}/memory", has="session_id")

    def ticks(self, name: str) -> Iterator[Record]:
        params = {"kinds": "tick_answered", "follow": "false"}
        with self._streamed(f"{_path(name)}/events", params) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    row = (orjson.loads(line.removeprefix("data: ")).get("data") or {}).get("record")
                    if row:
                        yield row

    def export(self, name: str, take: Take) -> None:
        with self._streamed(f"{_path(name)}/export", {}) as response:
            for part in response.iter_bytes():
                take(part)

    def delete(self, name: str) -> str:
        return str(self._json("DELETE", f"{_path(name)}")["id"])

    def attach(self, name: str, source: str) -> Record:
        """Have a source shown to the session; returns its state."""
        return self._json("POST", f"{_path(name)}/sources", json={"source": source})

    def sources(self, name: str) -> list[Record]:
        """Of one session, oldest first."""
        return list(self._json("GET", f"{_path(name)}/sources", has="data")["data"])

    def source(self, name: str, source_id: str) -> Record:
        return self._json("GET", f"{_path(name)}/sources/{quote(source_id, safe='')}")

    def detach(self, name: str, source_id: str) -> None:
        self._json("DELETE", f"{_path(name)}/sources/{quote(source_id, safe='')}")

    def engines(self) -> list[Record]:
        """The engines of the service."""
        return list(self._json("GET", "/v1/engines", has="data")["data"])

    def add_engine(self, url: str) -> Record:
        return self._json("POST", "/v1/engines", json={"url": url})

    def remove_engine(self, engine: str) -> None:
        self._json("DELETE", f"/v1/engines/{quote(engine, safe='')}")

    def operate(self, engine: str, change: str) -> Record:
        """``change``: ``drain`` or ``admit``; returns the engine's state."""
        return self._json("POST", f"/v1/engines/{quote(engine, safe='')}/{change}")

    def _json(self, method: str, path: str, *, has: str = "id", **more: Any) -> dict[str, Any]:
        """``has``: what an answer of a service has at least."""
        with self._told():
            status, told = answered_now(self._http, method, path, within_s=_ANSWER_S, most=_MOST, **more)
            self._check(status, told)
            answer = orjson.loads(told)
        if not isinstance(answer, dict) or has not in answer:
            raise AccessError(f"what answers at {self._url} is no vigil serve")
        return answer

    @contextmanager
    def _streamed(self, path: str, params: Mapping[str, str]) -> Iterator[httpx.Response]:
        with self._told(), self._http.stream("GET", path, params=params) as response:
            if response.is_error:
                self._check(response.status_code, response.read())
            yield response

    def _check(self, status: int, told: bytes) -> None:
        if status < 400:
            return
        try:
            error = orjson.loads(told)["error"]
            message = str(error["message"])
            if error.get("param") == "source":
                message = f"{error['code']}: {message}"
        except (ValueError, LookupError, TypeError):
            message = f"{self._url} answered with status {status}"
        raise AccessError(message, Exit.USAGE if status == 401 else Exit.FAILED)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as away:
            raise AccessError(f"can't reach {self._url}: {away}", Exit.ENGINE_UNREACHABLE) from away
        except (httpx.HTTPError, ValueError) as broken:
            raise AccessError(f"{self._url}: {broken or type(broken).__name__}") from broken


class FolderAccess:
    """The store itself. Reading is possible beside a service; deleting is not.

    :param database: URL of the store's database, if it is not the folder's own file
    """

    def __init__(self, folder: Path, database: str | None, tenant: str) -> None:
        if database is None and not (folder / "vigil.db").is_file():
            raise AccessError(
                f"there are no sessions in {folder}; name another folder with --data", Exit.USAGE
            )
        if database is None:
            _check_usable(folder)
        self._folder = folder.resolve()
        self._database = database or f"sqlite:///{self._folder}/vigil.db"
        self._tenant = tenant

    def sessions(self) -> Iterator[Record]:
        async def work(directory: Directory) -> list[Record]:
            found: list[Record] = []
            while True:
                page = await directory.page(self._tenant, _PAGE, found[-1]["id"] if found else None)
                found += page["data"]
                if not page["has_more"]:
                    return found

        yield from self._run(work)

    def about(self, name: str) -> Record:
        return self._run(lambda directory: directory.about(self._tenant, name))

    def memory(self, name: str) -> Record:
        return self._run(lambda directory: directory.memory(self._tenant, name))

    def ticks(self, name: str) -> Iterator[Record]:
        async def work(directory: Directory) -> list[Record]:
            tail = await directory.tail(self._tenant, name, 0, follow=False)
            rows: list[Record] = []
            async with aclosing(tail.pages(1.0)) as pages:
                async for page in pages:
                    told = (public_fact(f.kind, f.data) for f in page if f.kind == "tick_answered")
                    rows += [fact["record"] for fact in told if fact and fact["record"]]
            return rows

        yield from self._run(work)

    def export(self, name: str, take: Take) -> None:
        async def work(directory: Directory) -> None:
            _, parts = await directory.export(self._tenant, name)
            async for part in parts:
                take(part)

        self._run(work)

    def delete(self, name: str) -> str:
        try:
            lock = FolderLock(self._folder, alone=True)
        except FolderInUse:
            raise AccessError(
                f"a service uses {self._folder}; delete through it: --server http://HOST:PORT", Exit.USAGE
            ) from None
        except OSError as error:
            raise AccessError(f"can't write in {self._folder}: {error.strerror}", Exit.USAGE) from error
        try:
            return self._run(lambda directory: directory.delete(self._tenant, name))
        finally:
            lock.release()

    def _run(self, work: Callable[[Directory], Awaitable[T]]) -> T:
        async def opened() -> T:
            async with self._opened() as directory:
                return await work(directory)

        try:
            return asyncio.run(opened())
        except VigilError as error:
            raise AccessError(error.message) from error
        except StoreError as error:
            raise AccessError(f"{self._folder}: {error.message}") from error

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Directory]:
        store = await Store.open(self._database, self._folder, now_ms=SystemClock().wall_ms)
        try:
            yield Directory(store, Bells())
        finally:
            await store.close()


def _check_usable(folder: Path) -> None:
    """SQLite writes beside its file even to read it; without that it would only try for long."""
    for needed in (folder, folder / "vigil.db"):
        if not os.access(needed, os.R_OK | os.W_OK):
            raise AccessError(
                f"can't read and write {needed}, as looking into a store needs; run this as the user of the "
                "service, or ask the service: --server http://HOST:PORT",
                Exit.USAGE,
            )


def _path(name: str) -> str:
    return f"/v1/sessions/{quote(name, safe='')}"
