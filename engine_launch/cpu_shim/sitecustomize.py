"""Lets a CUDA build of torchvision be imported beside a CPU build of torch.

On the engine's PYTHONPATH only where the launcher saw that ``import torchvision`` fails: that import
registers fake kernels for two operators which a mismatched build never defined, so they are declared just
before it. The engine does not call them. Being ``sitecustomize``, it reaches the
engine's child processes too.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


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


sys.meta_path.insert(0, _BeforeTorchvision())
