"""Two repairs and a head start for vLLM on the CPU. On the PYTHONPATH of CPU engines; being
``sitecustomize``, it reaches the engine's child processes too.

A CUDA build of torchvision beside a CPU build of torch (only where the launcher saw that its import fails):
importing it registers fake kernels for two operators which a mismatched build never defined, so they are
declared just before. The engine does not call them.

A seeded request whose prompt is computed in several steps: each step but the last samples a token that is
thrown away, and the engine then winds the request's random generator back, which generators on the CPU cannot
do: the engine dies. Here such a request does not touch its generator in the first place.

The head start is in ``engine_shim_forks``: the engine is up in less than half the time.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _BeforeTorchvision(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name != "torchvision":
            return
        sys.meta_path.remove(self)
        import torch

        # The library must live as long as the process, or its operators vanish with it.
        sys.modules[__name__].__dict__["operators"] = library = torch.library.Library(
            "torchvision", "FRAGMENT"
        )
        for operator in ("nms", "qnms"):
            with contextlib.suppress(RuntimeError):  # a matching build has defined it already
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


class _AfterModelRunner(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "vllm.v1.worker.cpu_model_runner":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Repaired(spec.loader)
        return spec


class _Repaired(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        runner = module.CPUModelRunner
        sample = runner.sample_tokens

        def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
            generators = self.input_batch.generators
            partial = [index for index in generators if self.discard_request_mask.np[index]]
            aside = {index: generators.pop(index) for index in partial}
            try:
                return sample(self, *args, **kwargs)
            finally:
                generators.update(aside)

        runner.sample_tokens = sample_tokens


sys.meta_path.insert(0, _AfterModelRunner())
if os.environ.get("ENGINE_SHIM_TORCHVISION"):
    sys.meta_path.insert(0, _BeforeTorchvision())
if preload := os.environ.pop("ENGINE_SHIM_PRELOAD", ""):  # the server's and its forks' own shim finds none
    importlib.import_module("engine_shim_forks").begin(preload.split(","))
