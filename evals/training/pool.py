"""Lessons on the accelerator: worker processes play sessions without end, batches come from the newest."""

from __future__ import annotations

import queue
import random
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from evals.training.examples import Task, lesson
from evals.training.network import PICTURE_TOKENS, SIDE
from evals.training.tokens import Layout, load_tokenizer
from prompts.loader import load_pack

FAMILY = "standin"
FOLDER = "/dev/shm"
OWNER = 4096
"""An answer's number in a batch: its row times this, plus which answer it is."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A request as batches need it: all that can be worked out beforehand.

    ``frames``: where its pictures lie in the pool; ``said``: indices of the tokens to be said.
    """

    task: Task
    frames: npt.NDArray[np.int64]
    seen: npt.NDArray[np.int64]
    said: npt.NDArray[np.int64]
    known: npt.NDArray[np.bool_]

    @property
    def length(self) -> int:
        return len(self.task.tokens.ids)


def _ready(task: Task, base: int) -> Ready:
    tokens = task.tokens
    seen = (tokens.pictures[:, None] + np.arange(PICTURE_TOKENS)).reshape(-1)
    known = np.arange(len(tokens.ticks)) > 0
    return Ready(task, base + task.frames, seen, np.flatnonzero(tokens.codes), known)


def work(results: Any, first: int, step: int, tokenizer: str, recall: float) -> None:
    """One worker. Pictures go by a file in memory, which costs the reader next to nothing."""
    pack = load_pack(FAMILY)
    layout = Layout(load_tokenizer(tokenizer), pack.tags.silence)
    folder = tempfile.mkdtemp(prefix="lessons-", dir=FOLDER)
    seed = first
    while True:
        fresh = lesson(seed, pack, layout, recall=recall)
        path = f"{folder}/{seed}.npy"
        np.save(path, fresh.pictures)
        results.put((path, fresh.shown, fresh.tasks))
        seed += step


class Pool:
    """The newest lessons, their pictures in one ring in the accelerator's memory."""

    def __init__(self, device: torch.device, frames: int, names: int) -> None:
        self.device = device
        self.pictures = torch.zeros((frames, SIDE, SIDE, 3), dtype=torch.uint8, device=device)
        self.shown = torch.zeros((frames, names), dtype=torch.uint8, device=device)
        self._lessons: deque[tuple[int, int, list[Ready]]] = deque()
        self._next = 0
        self.taken = 0

    def add(
        self, pictures: npt.NDArray[np.uint8], shown: npt.NDArray[np.uint8], tasks: Sequence[Task]
    ) -> None:
        count = len(pictures)
        if self._next + count > len(self.pictures):
            while self._lessons and self._lessons[0][0] >= self._next:
                self._lessons.popleft()
            self._next = 0
        base, end = self._next, self._next + count
        while self._lessons and self._lessons[0][0] < end and base < self._lessons[0][1]:
            self._lessons.popleft()
        self.pictures[base:end] = torch.from_numpy(pictures).to(self.device)
        self.shown[base:end] = torch.from_numpy(shown).to(self.device)
        self._lessons.append((base, end, [_ready(task, base) for task in tasks]))
        self._next = end
        self.taken += 1

    def take(self, results: Any, most: int) -> None:
        """Up to so many lessons that wait. No thread does it: it would fight for the interpreter's lock with
        whoever has a thousand small things to start on the accelerator."""
        for _ in range(most):
            try:
                path, shown, tasks = results.get_nowait()
            except queue.Empty:
                return
            self.add(np.load(path, mmap_mode="c"), shown, tasks)
            Path(path).unlink()

    @property
    def lessons(self) -> int:
        return len(self._lessons)

    def everything(self) -> list[Ready]:
        return [one for _, _, tasks in self._lessons for one in tasks]

    def draw(self, rng: random.Random, tokens: int) -> list[Ready]:
        """Requests of about the same length, so that little of the batch is padding."""
        count = len(self._lessons)
        chosen = [one for _ in range(60) for one in self._lessons[rng.randrange(count)][2]]
        middle = rng.choice(chosen).length
        chosen.sort(key=lambda one: abs(one.length - middle))
        batch: list[Ready] = []
        longest = 0
        for one in chosen:
            longest = max(longest, one.length)
            if batch and longest * (len(batch) + 1) > tokens:
                break
            batch.append(one)
        return batch


def collate(chosen: Sequence[Ready], pool: Pool) -> dict[str, Any]:
    """One batch; see ``Network.forward``. ``targets``, ``codes`` and ``owners`` go with ``wanted``, ``shown``
    with pictures, ``changed`` and ``known`` with ticks."""
    length = (max(one.length for one in chosen) + 63) // 64 * 64
    ids = np.zeros((len(chosen), length), np.int64)
    places = np.zeros((3, len(chosen), length), np.int64)
    for row, one in enumerate(chosen):
        ids[row, : one.length] = one.task.tokens.ids
        places[:, row, : one.length] = one.task.tokens.places
    rows = [(row * length, one, one.task.tokens) for row, one in enumerate(chosen)]
    parts: dict[str, list[npt.NDArray[Any]]] = {
        "seen": [base + one.seen for base, one, _ in rows],
        "wanted": [base + one.said - 1 for base, one, _ in rows],
        "ticks": [base + tokens.ticks for base, _, tokens in rows],
        "targets": [tokens.ids[one.said].astype(np.int64) for _, one, tokens in rows],
        "codes": [tokens.codes[one.said].astype(np.int64) for _, one, tokens in rows],
        "owners": [
            tokens.answers[one.said].astype(np.int64) + row * OWNER
            for row, (_, one, tokens) in enumerate(rows)
        ],
        "known": [one.known for one in chosen],
        "frames": [one.frames for one in chosen],
    }
    flat = {name: torch.from_numpy(np.concatenate(values)) for name, values in parts.items()}
    flat |= {"tokens": torch.from_numpy(ids), "places": torch.from_numpy(places)}
    batch: dict[str, Any] = {name: value.to(pool.device, non_blocking=True) for name, value in flat.items()}
    batch["pictures"] = pool.pictures[batch["frames"]]
    shown = pool.shown[batch["frames"]].float()
    before = torch.cat((torch.zeros_like(shown[:1]), shown[:-1]))
    batch["shown"] = shown
    batch["changed"] = torch.cat((shown, (shown > before).float(), (shown < before).float()), dim=-1)
    return batch
