"""Train the small model: ``python -m evals.training.train --tokenizer tokenizer.json --out OUT``.

Runs until its time is over, writes what it has learned now and then, and measures itself on sessions of the
held-out split. The model computes in bf16, as engines do; the optimizer's weights are in single precision.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from evals.training.examples import lesson, names
from evals.training.network import Network, Shape
from evals.training.pool import FAMILY, OWNER, Pool, collate, work
from evals.training.tokens import SILENCE, SPEAK, Layout, load_tokenizer
from prompts.loader import load_pack

HELD_OUT_SEED = 900_000_000


@dataclass(frozen=True, slots=True)
class Course:
    """How a run goes.

    :param rate: learning rate at its highest, reached after ``warm_steps``; ends at ``end_rate`` times it
    :param tokens: of a batch; ``frames``: pictures kept to draw from
    :param lessons: new ones for each step
    :param silence: weight of a silence; a first word weighs 2 less that
    :param aids: weight of the training's own heads; it falls to a tenth
    :param recall: share of long sessions that are asked about what was
    :param slowest: steps a second below which the run gives up after a minute
    """

    seconds: float = 560.0
    rate: float = 1.2e-3
    warm_steps: int = 300
    end_rate: float = 0.02
    tokens: int = 65536
    frames: int = 800_000
    seed: int = 1
    workers: int = 14
    lessons: int = 2
    silence: float = 0.6
    aids: float = 10.0
    recall: float = 0.0
    save_s: float = 60.0
    measure_s: float = 60.0
    held_out: int = 100
    slowest: float = 0.0


def loss_of(
    network: torch.nn.Module, batch: dict[str, Any], silence: float, aids: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, and its parts for the log: what is said, what one picture shows, what changed."""
    weights = torch.tensor([0.0, silence, 2 - silence, 1.0, 1.0], device=batch["codes"].device)
    out = network(batch)
    each = functional.cross_entropy(out["logits"].float(), batch["targets"], reduction="none")
    weight = weights[batch["codes"]]
    say = (each * weight).sum() / weight.sum()
    glance = functional.binary_cross_entropy_with_logits(out["glance"].float(), batch["shown"])
    notice = functional.binary_cross_entropy_with_logits(
        out["notice"].float(), batch["changed"], reduction="none"
    )
    notice = (notice.mean(-1) * batch["known"]).mean()
    return say + aids * (glance + notice), torch.stack((say, glance, notice)).detach()


@torch.no_grad()
def measure(network: Network, held: Pool, tokens: int) -> dict[str, float]:
    """Shares of answers that are right word for word, given what was right before, by skill; of silences
    kept; of decisions that are right where speech was wanted; of the tokens of notes."""
    right: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def count(name: str, hits: int, of: int = 1) -> None:
        right[name][0] += hits
        right[name][1] += of

    waiting = sorted(held.everything(), key=lambda one: one.length)
    while waiting:
        size = max(1, tokens // waiting[-1].length)
        part, waiting = waiting[-size:], waiting[:-size]
        if not any(len(one.frames) for one in part):
            continue
        batch = collate(part, held)
        good = (network(batch)["logits"].argmax(-1) == batch["targets"]).cpu().numpy()
        owners, codes = batch["owners"].cpu().numpy(), batch["codes"].cpu().numpy()
        begins = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        whole = np.logical_and.reduceat(good, begins)
        sums = np.add.reduceat(good.astype(int), begins)
        lengths = np.diff(np.r_[begins, len(good)])
        for at, fine, hits, length in zip(begins, whole, sums, lengths, strict=True):
            task = part[owners[at] // OWNER].task
            skill = task.skills[owners[at] % OWNER]
            if codes[at] == SILENCE:
                count("silence", int(good[at]))
                continue
            count(skill, int(fine))
            if codes[at] == SPEAK:
                count("speaks", int(good[at]))
            else:
                count(f"{task.kind}_tokens", int(hits), int(length))
    return {name: round(hits / of, 4) for name, (hits, of) in sorted(right.items())}


class Weights:
    """The optimizer's weights in single precision, and their running average, which is what is kept."""

    def __init__(self, network: Network, course: Course) -> None:
        self._named = list(network.named_parameters())
        self.master = [p.detach().float().clone().requires_grad_() for _, p in self._named]
        self.average = [p.detach().clone() for p in self.master]
        wide = [m for m in self.master if m.dim() >= 2]
        narrow = [m for m in self.master if m.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": wide, "weight_decay": 0.05}, {"params": narrow, "weight_decay": 0.0}],
            lr=course.rate, betas=(0.9, 0.98), fused=wide[0].is_cuda,
        )  # fmt: skip

    @torch.no_grad()
    def step(self, rate: float, number: int) -> None:
        grads = [p.grad for _, p in self._named]
        for master, grad in zip(self.master, grads, strict=True):
            master.grad = None if grad is None else grad.float()
        torch.nn.utils.clip_grad_norm_(self.master, 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        torch._foreach_copy_([p.data for _, p in self._named], [m.data for m in self.master])
        share = min(0.998, (1 + number) / (20 + number))
        torch._foreach_lerp_(self.average, [m.data for m in self.master], 1 - share)
        for _, p in self._named:
            p.grad = None

    def averaged(self) -> dict[str, torch.Tensor]:
        return {name: value for (name, _), value in zip(self._named, self.average, strict=True)}


def rate_at(course: Course, step: int, elapsed: float) -> float:
    wave = 0.5 * (1 + np.cos(np.pi * min(1.0, elapsed / course.seconds)))
    warm = min(1.0, (step + 1) / course.warm_steps)
    return float(course.rate * warm * (course.end_rate + (1 - course.end_rate) * wave))


OWN = ("glance", "notice")


def save(weights: Weights, out: Path) -> None:
    state = {n: v.to(torch.bfloat16).cpu().contiguous() for n, v in weights.averaged().items()}
    save_file({n: v for n, v in state.items() if not n.startswith(OWN)}, str(out / "model.safetensors"))
    save_file({n: v for n, v in state.items() if n.startswith(OWN)}, str(out / "heads.safetensors"))


def load(network: Network, folder: Path) -> None:
    """What a former run wrote, or a checkpoint: without the training's own heads, which begin anew."""
    state = load_file(str(folder / "model.safetensors"))
    if (heads := folder / "heads.safetensors").exists():
        state |= load_file(str(heads))
    found = network.load_state_dict({name: value.float() for name, value in state.items()}, strict=False)
    if found.unexpected_keys or not all(name.startswith(OWN) for name in found.missing_keys):
        raise ValueError(f"{folder}: these weights are another model's: {found}")


class Log:
    def __init__(self, file: Path) -> None:
        self._file, self._began = file.open("a"), time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def __call__(self, **row: Any) -> None:
        text = json.dumps({"s": round(self.elapsed, 1), **row})
        print(text, flush=True)
        self._file.write(text + "\n")
        self._file.flush()


def run(course: Course, out: Path, tokenizer_file: Path, start_from: Path | None) -> int:
    out.mkdir(parents=True, exist_ok=True)
    log = Log(out / "log.jsonl")
    log(course=asdict(course), start_from=str(start_from) if start_from else None)
    text = tokenizer_file.read_text()
    context = multiprocessing.get_context("fork")
    results = context.Queue(maxsize=8 * course.workers)
    first = course.seed * 10_000_000
    workers = [
        context.Process(
            target=work, args=(results, first + index, course.workers, text, course.recall), daemon=True
        )
        for index in range(course.workers)
    ]
    for worker in workers:
        worker.start()
    try:
        return _run(course, out, text, start_from, results, log)
    finally:
        for worker in workers:
            worker.terminate()


def _run(course: Course, out: Path, text: str, start_from: Path | None, results: Any, log: Log) -> int:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(course.seed)
    torch.backends.cuda.enable_cudnn_sdp(
        False
    )  # it makes a plan for every shape of a batch, which costs more than it saves
    pack, tokenizer = load_pack(FAMILY), load_tokenizer(text)
    layout, labels = Layout(tokenizer, pack.tags.silence), len(names())
    pool = Pool(device, course.frames, labels)
    shape = Shape(tokenizer.get_vocab_size(with_added_tokens=True))
    network, kept = Network(shape, labels), Network(shape, labels)
    if start_from:
        load(network, start_from)
    network, kept = network.to(device), kept.to(device, torch.bfloat16)
    weights = Weights(network, course)
    network = network.to(torch.bfloat16)
    held = Pool(device, 300 * course.held_out, labels)
    for number in range(course.held_out):
        fresh = lesson(HELD_OUT_SEED + number, pack, layout, "held_out", course.recall)
        held.add(fresh.pictures, fresh.shown, fresh.tasks)
    while pool.lessons < 8 * course.workers:
        pool.take(results, 1)
    log(parameters=sum(p.numel() for p in network.parameters()), device=str(device), lessons=pool.lessons)

    def held_out() -> dict[str, float]:
        kept.load_state_dict({n: v.to(torch.bfloat16) for n, v in weights.averaged().items()})
        return measure(kept, held, course.tokens)

    rng = random.Random(course.seed)
    step = tokens = last = 0
    began = told = saved = measured = log.elapsed
    sums = torch.zeros(3, device=device)
    while (elapsed := log.elapsed) < course.seconds:
        pool.take(results, course.lessons)
        chosen = pool.draw(rng, course.tokens)
        if not any(len(one.frames) for one in chosen):
            continue  # roll-ups alone: they are learned among others
        batch = collate(chosen, pool)
        aids = course.aids * max(0.1, 1 - elapsed / course.seconds)
        loss, parts = loss_of(network, batch, course.silence, aids)
        loss.backward()
        weights.step(rate_at(course, step, elapsed), step)
        step += 1
        tokens += batch["tokens"].numel()
        sums += parts
        if log.elapsed - told > 10:
            means = dict(zip(("say", "glance", "notice"), (sums / (step - last)).tolist(), strict=True))
            told, last, sums = log.elapsed, step, torch.zeros(3, device=device)
            log(
                step=step, tokens=tokens, lessons=pool.taken, kept=pool.lessons,
                rate=rate_at(course, step, elapsed), **{n: round(v, 5) for n, v in means.items()},
            )  # fmt: skip
            if told - began > 40 and step / (told - began) < course.slowest:
                log(gave_up="too slow")
                return 3
        if log.elapsed - measured > course.measure_s:
            log(step=step, held_out=held_out())
            measured = log.elapsed
        if log.elapsed - saved > course.save_s:
            save(weights, out)
            saved = log.elapsed
    log(step=step, tokens=tokens, lessons=pool.taken, final=held_out())
    save(weights, out)
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--start-from", type=Path, help="folder that a former run wrote")
    for name, value in asdict(Course()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    given = vars(parser.parse_args())
    course = Course(**{name: given[name] for name in asdict(Course())})
    sys.exit(run(course, given["out"], given["tokenizer"], given["start_from"]))


if __name__ == "__main__":
    main()
