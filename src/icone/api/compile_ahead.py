"""The program that compiles the step of a run, so that the run finds it in the compiler's cache on disk.

`icone.cuda.CompilerProcess` starts it. The step is built from the configuration as the run has built its own, with
random samples and weights: the cache knows code by shapes and types, not by values.
"""

from __future__ import annotations

import torch

from icone.api.random_data import DataShape
from icone.api.training_parts import build_parts
from icone.config_text import from_json
from icone.cuda import CudaOptions
from icone.cuda.compiler_process import read_request
from icone.cuda.graph import compile_step
from icone.process import configure_process
from icone.training.context import RunContext
from icone.training.step import TrainStep


def main() -> None:
    """Compile what the request says."""
    request = read_request()
    configure_process()
    config = from_json(request["config"])
    device = torch.device(request["device"])
    parts = build_parts(config, DataShape.from_json(request["data"]).random(device, config.views), from_state=True)
    step = TrainStep(parts.method.train(), parts.views, config, request["total_steps"], device)
    if request["checkpointed"]:
        step.checkpoint_activations()
    with RunContext(device, tf32=parts.method.autocast_dtype is not None).active():
        parts.loader.begin(0)
        sizes = [tuple(group) for group in request["sizes"]]
        compile_step(step, parts.loader, sizes, CudaOptions(**request["options"]))
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
