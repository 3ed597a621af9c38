"""Launch profiles: how an engine is started, as TOML data in ``profiles/``.

A profile file may hold variants, one per size of machine; ``joyvl:24gb`` names one. A variant's tables are
laid over the file's own. ``load_profile`` returns one resolved :class:`Profile`, whatever it came from.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from engine_launch.errors import NoGpu, ProfileError
from engine_launch.paths import PACKAGE

FOLDER = PACKAGE / "profiles"
DEPLOY = PACKAGE / "deploy"
Flag = bool | int | float | str | dict[str, Any]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSource(_Table):
    """Which weights are served, and under which name clients ask for them.

    :param path: a folder or a Hugging Face id
    :param shipped: a folder of this package with weights that come with it
    :param builder: built on first use instead: ``programmed``, a tiny model whose answers are a script;
        ``smollm2``, a small language model with real weights
    :param ask: what to name with ``--model`` where no public id can be given
    """

    served_name: str
    path: str | None = None
    shipped: str | None = None
    builder: Literal["programmed", "smollm2"] | None = None
    ask: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> ModelSource:
        given = [source for source in (self.path, self.shipped, self.builder, self.ask) if source is not None]
        if len(given) != 1:
            raise ValueError("give one of path, shipped, builder and ask")
        return self


class ImageCache(_Table):
    """The engine's cache of processed images. Its kind is a fact other rooms rely on: it can't be probed.

    :param kind: ``shm`` keeps front end and core in step; ``lru`` is the engine's default, and far cheaper
        where a prompt holds many pictures
    :param mib: size; about 1.2 MB per frame of 448 x 448 pixels
    :param fallback: used where ``/dev/shm`` is smaller than ``mib``; without it such a start is refused
    """

    kind: Literal["shm", "lru"]
    mib: int = Field(gt=0)
    fallback: Literal["lru"] | None = None


class Deadlines(_Table):
    """Seconds: until the engine listens, until a first real request is answered, until TERM becomes KILL."""

    boot_s: float = Field(gt=0)
    warmup_s: float = Field(gt=0)
    stop_s: float = Field(default=20.0, gt=0)


class FlagsSince(_Table):
    """Flags for engines from ``version`` on; older ones don't know them."""

    version: str
    flags: dict[str, Flag]

    @field_validator("version")
    @classmethod
    def _numbers(cls, value: str) -> str:
        _numbers_of(value)
        return value


class Profile(_Table):
    """One way to start one engine.

    :param name: the file's name; ``variant`` the part of it in use
    :param family: the prompt pack that fits the model, or its native profile where it has a ``deploy`` file;
        without one it sees nothing and answers in words: a solver of delegated questions, a summarizer
    :param engine: ``cpu``, ``gpu`` or ``omni``: which pinned requirements the engine's environment is made of
    :param deploy: file in ``deploy/`` (or a path) that lays out the stages of a full-duplex engine
    :param flags: of ``vllm serve``, without dashes: true and false become ``--x`` and ``--no-x``, tables JSON
    :param min_gpu_gib: memory of the GPU this needs; a bare file name picks the largest variant that fits
    :param gpus: how many of them; they are looked for before anything is downloaded
    """

    name: str
    variant: str | None = None
    summary: str
    family: str | None = None
    engine: Literal["cpu", "gpu", "omni"]
    deploy: str | None = None
    port: int = Field(gt=0, lt=65536)
    min_gpu_gib: float | None = None
    gpus: int | None = Field(default=None, gt=0)
    model: ModelSource
    image_cache: ImageCache | None = None
    deadlines: Deadlines
    environment: dict[str, str] = Field(default_factory=dict)
    flags: dict[str, Flag] = Field(default_factory=dict)
    flags_since: tuple[FlagsSince, ...] = ()

    @model_validator(mode="after")
    def _eyes_or_none(self) -> Profile:
        if (self.deploy is not None) != (self.engine == "omni"):
            raise ValueError("deploy goes with the engine omni, and only with it")
        if self.deploy is not None:
            if self.family is None or self.image_cache is not None:
                raise ValueError("a full-duplex engine has a family, and no image_cache")
            if not self.deploy_file.is_file():
                raise ValueError(f"there is no deploy file {self.deploy!r}")
        elif (self.family is None) != (self.image_cache is None):
            raise ValueError("family and image_cache go together: a model that watches needs both")
        return self

    @property
    def duplex(self) -> bool:
        """Whether it is a full-duplex engine: it is spoken to over one long session, not in requests."""
        return self.deploy is not None

    @property
    def deploy_file(self) -> Path:
        own = DEPLOY / (self.deploy or "")
        return own if own.is_file() else Path(self.deploy or "").resolve()

    @property
    def title(self) -> str:
        return f"{self.name}:{self.variant}" if self.variant else self.name

    @property
    def priority(self) -> bool:
        """Whether the engine is started with priority scheduling."""
        return self.flags.get("scheduling-policy") == "priority"

    def arguments(self, engine_version: str) -> list[str]:
        """The flags as command line arguments for an engine of ``engine_version``."""
        flags = dict(self.flags)
        for later in self.flags_since:
            if _numbers_of(engine_version) >= _numbers_of(later.version):
                flags.update(later.flags)
        arguments: list[str] = []
        for name, value in flags.items():
            if isinstance(value, bool):
                arguments.append(f"--{name}" if value else f"--no-{name}")
            else:
                arguments += [f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value)]
        return arguments

    def changed(self, **changes: Any) -> Profile:
        """A copy with other values, tables merged: ``changed(flags={"max-model-len": 8192})``."""
        return _validated(_merged(self.model_dump(), changes), self.title)


def profile_names() -> list[str]:
    """Every profile that can be named, variants included."""
    names: list[str] = []
    for path in sorted(FOLDER.glob("*.toml")):
        variants = _read(path).get("variants", {})
        names += [f"{path.stem}:{variant}" for variant in variants] if variants else [path.stem]
    return names


def duplex_family(served: Iterable[str]) -> str | None:
    """The family of the full-duplex profile that serves a model under one of these names."""
    names = set(served)
    for name in profile_names():
        if ":" not in name and _read(FOLDER / f"{name}.toml").get("deploy"):
            profile = load_profile(name)
            if names & {profile.model.served_name, profile.model.path}:
                return profile.family
    return None


def base_name(named: str) -> str:
    """The instance name of a profile argument: ``joyvl:24gb`` and ``/x/joyvl.toml`` are both ``joyvl``."""
    return Path(named).stem if named.endswith(".toml") else named.partition(":")[0]


def load_profile(named: str) -> Profile:
    """The profile ``name``, ``name:variant`` or ``path/to/own.toml``. Raises :class:`ProfileError`.

    Without a variant, a file that has variants gives the largest one that fits this machine's GPU.
    """
    if named.endswith(".toml"):
        path, variant = Path(named), ""
    else:
        stem, _, variant = named.partition(":")
        path = FOLDER / f"{stem}.toml"
    if not path.is_file():
        close = difflib.get_close_matches(named, profile_names(), n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise ProfileError(f"there is no profile {named!r}", f"{hint}Profiles: {', '.join(profile_names())}.")
    table = _read(path)
    variants: dict[str, dict[str, Any]] = table.pop("variants", {})
    if variants:
        variant = variant or _fitting(path.stem, variants)
        if variant not in variants:
            known = ", ".join(f"{path.stem}:{v}" for v in variants)
            raise ProfileError(f"{path.stem} has no variant {variant!r}", f"Its variants: {known}.")
        if "model" in variants[variant]:  # another source of weights replaces the file's
            table["model"] = {"served_name": table["model"]["served_name"]}
        table = _merged(table, variants[variant])
        table["variant"] = variant
    elif variant:
        raise ProfileError(f"{path.stem} has no variants", f"Name it as {path.stem}.")
    return _validated({**table, "name": path.stem}, str(path))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path} is not valid TOML: {error}") from None


def _validated(table: dict[str, Any], where: str) -> Profile:
    try:
        return Profile.model_validate(table)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'profile'}: {fault['msg']}" for fault in error.errors()
        )
        raise ProfileError(
            f"{where}: {faults}", "Compare it with a profile in engine_launch/profiles."
        ) from None


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _numbers_of(version: str) -> tuple[int, ...]:
    """``0.25.1.dev3`` -> (0, 25, 1): enough to compare releases."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    if not numbers:
        raise ValueError(f"{version!r} is not a version")
    return tuple(numbers)


def _fitting(name: str, variants: dict[str, dict[str, Any]]) -> str:
    """The most demanding variant that this machine's GPU can hold and that needs nothing from the user."""
    memory = gpu_memory_gib()
    if memory is None:
        raise ProfileError(
            f"{name} needs an NVIDIA GPU and none was found",
            f"If there is one, name a variant: {', '.join(f'{name}:{v}' for v in variants)}."
            " Without one, try standin-cpu.",
        )
    fitting = {
        variant: float(table["min_gpu_gib"])
        for variant, table in variants.items()
        if table["min_gpu_gib"] <= memory and "ask" not in table.get("model", {})
    }
    if not fitting:
        raise ProfileError(
            f"no variant of {name} fits a GPU of {memory:.0f} GiB", "A 24 GB card is the least."
        )
    return max(fitting, key=lambda variant: fitting[variant])


def require_gpus(profile: Profile) -> None:
    """Raises :class:`NoGpu` where this machine has fewer or smaller GPUs than ``profile`` states."""
    if profile.gpus is None:
        return
    least = profile.min_gpu_gib or 0.0
    sizes = gpus_gib()
    if len([size for size in sizes if size >= least]) >= profile.gpus:
        return
    wanted = "an NVIDIA GPU" if profile.gpus == 1 else f"{profile.gpus} NVIDIA GPUs"
    has = ", ".join(f"{size:.0f} GiB" for size in sizes)
    raise NoGpu(
        f"{profile.title} needs {wanted} of {least:.0f} GiB, and "
        + (f"here is {has}" if has else "here is none"),
        "Start it on a machine that has that, and check it from here: vigil engine check URL"
        + (f" --family {profile.family}" if profile.family else ""),
    )


def gpu_memory_gib() -> float | None:
    """Memory of the largest GPU, or None where ``nvidia-smi`` shows none."""
    return max(gpus_gib(), default=None)


def gpus_gib() -> list[float]:
    """Memory of each GPU that ``nvidia-smi`` shows."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    sizes = [float(line) / 1024 for line in done.stdout.split() if line.replace(".", "").isdigit()]
    return sizes if done.returncode == 0 else []
