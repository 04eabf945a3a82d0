"""torchvision in an environment without CUDA."""

from __future__ import annotations

from typing import Any

OPERATORS = ("nms(Tensor dets, Tensor scores, float threshold) -> Tensor",
             "qnms(Tensor dets, Tensor scores, float threshold) -> Tensor")  # fmt: skip
"""Those that importing torchvision asks for."""
_libraries: list[Any] = []
"""They take back what they define when they are collected."""


def torchvision_without_gpu() -> None:
    """Let torchvision be imported beside a torch without CUDA.

    PyPI's torchvision needs CUDA for its compiled operators, and can't be imported where they aren't loaded. Nothing
    that is tested calls them.
    """
    import torch

    for operator in OPERATORS:
        if not hasattr(torch.ops.torchvision, operator.partition("(")[0]):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(operator)
            _libraries.append(library)
