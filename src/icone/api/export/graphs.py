"""Whole computations, without Python: `torch.export` programs and ONNX files, from samples in [0, 1] to outputs."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from icone.api.export.base import Export, WithNormalisation, description_file
from icone.errors import InputError, one_line, optional
from icone.files import replacing, write_json

TOLERANCE = 1e-4
"""How far outputs of an ONNX file may be from those of PyTorch, relative to the largest of them."""


def write_torch(export: Export, target: Path) -> None:
    """A program of `torch.export` (.pt2) for any batch size; a description in JSON lies beside it."""
    with replacing(target) as temporary, _quiet():
        torch.export.save(_program(export), temporary)
    write_json(description_file(target), export.description("torch", takes_unit=True))


def write_onnx(export: Export, target: Path) -> None:
    """An ONNX file for any batch size, compared with PyTorch by onnxruntime; a description in JSON lies beside it."""
    with optional("onnx", "icone export --format=onnx"):
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    model = WithNormalisation(export.network, export.views).eval()
    with replacing(target) as temporary:
        with _quiet():
            program: Any = torch.onnx.export(
                _program(export), dynamo=True, input_names=["samples"], output_names=[export.output_name], verbose=False
            )
            program.save(temporary, external_data=False)
        found = OnnxEncoder(temporary)
        for batch in (1, 3):
            samples = export.example(batch)
            with torch.no_grad():
                expected = model(samples)
            error = ((found(samples) - expected).abs().max() / expected.abs().max().clamp(min=1e-12)).item()
            if not error <= TOLERANCE:
                raise InputError(
                    f"onnxruntime gives other {export.output_name} than PyTorch for this network (by {error:.1e} of "
                    f"the largest, {TOLERANCE:g} is allowed), so that nothing was written: use --format=torch"
                )
    write_json(description_file(target), export.description("onnx", takes_unit=True))


def _program(export: Export) -> Any:
    model = WithNormalisation(export.network, export.views).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    try:
        return torch.export.export(model, (export.example(2),), dynamic_shapes={"samples": {0: batch}})
    except Exception as error:  # what the compiler cannot follow has many types
        raise InputError(
            f"torch.export cannot follow the encoder {export.name}: {one_line(error)}. Use --format=hub or timm, which "
            "keep weights and the name of the network"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters warn about their own insides."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class OnnxEncoder(nn.Module):
    """An ONNX file as a network on the CPU."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        with optional("onnx", "an ONNX file"):
            import onnxruntime
        try:
            self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has exceptions of its own, without a common type
            raise InputError(f"cannot read {path}: {one_line(error)}") from error
        self.num_features = int(self.session.get_outputs()[0].shape[1])

    def forward(self, samples: Tensor) -> Tensor:
        (features,) = self.session.run(None, {"samples": samples.detach().cpu().float().numpy()})
        return torch.from_numpy(np.asarray(features))


def read_torch(path: Path, num_features: int) -> nn.Module:
    """The network of a .pt2 file."""
    try:
        network: Any = torch.export.load(path).module()
    except Exception as error:  # a damaged archive fails in many ways
        raise InputError(f"cannot read {path}: {one_line(error)}") from error
    return _Program(network, num_features)


class _Program(nn.Module):
    """A program of `torch.export` as a network; it knows no training mode."""

    def __init__(self, program: nn.Module, num_features: int) -> None:
        super().__init__()
        self.program, self.num_features = program, num_features

    def forward(self, samples: Tensor) -> Tensor:
        return self.program(samples)  # type: ignore[no-any-return]

    def train(self, mode: bool = True) -> _Program:
        if mode:
            raise InputError("an exported program cannot be trained: export with --format=hub, and load that")
        self.training = False
        return self
