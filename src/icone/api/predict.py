"""`icone.load_classifier` and `icone.predict`: what a fine-tuned network says about samples."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from torch import Tensor, nn

from icone.api.build import Given, check_given, make_encoder, make_views, memory_errors, own_randomness, pick_device
from icone.api.embed import load_with_notes, plain_views
from icone.api.embedding_table import write_embeddings
from icone.api.run_data import for_other_data, note_splits, open_run_data, without_labels
from icone.api.summaries import finetune_parts
from icone.config import PretrainConfig, with_given
from icone.config_text import from_json
from icone.data import Dataset, Preparation
from icone.data.prepare import Spacing
from icone.data.sources.base import Array
from icone.data.sources.registry import one_sample
from icone.errors import InputError, printable
from icone.evaluation.features import mean_over_windows
from icone.find_runs import FINETUNED, is_finetuned, is_pretrained, no_run, runs_in
from icone.finetuning.classifier import Classifier, outputs_of
from icone.finetuning.label_code import LabelCode
from icone.readable import Part, Readable, as_html, as_text
from icone.run import Run, refuse_own_file
from icone.tensor_files import load_weights, read_tensors
from icone.terminal import Terminal
from icone.validation import check_arguments, check_target
from icone.views import Views

WEIGHTS = "classifier.safetensors"
TABLES = (".csv", ".parquet")


class FineTuned(nn.Module):
    """A fine-tuned network with its preprocessing: raw samples in, probabilities or numbers out; in eval mode."""

    def __init__(
        self,
        classifier: Classifier,
        code: LabelCode,
        preparation: Preparation,
        views: Views,
        config: PretrainConfig,
        folder: Path,
    ) -> None:
        super().__init__()
        self.classifier, self.views = classifier, views
        self.code, self.preparation, self.config, self.folder = code, preparation, config, folder
        self.eval()
        self.requires_grad_(False)

    @property
    def result(self) -> Readable:
        """What `icone finetune` measured on the test part."""
        return Readable(Run(self.folder).read_json("result.json"), finetune_parts)

    @property
    def history(self) -> list[dict[str, Any]]:
        """One dictionary per epoch of every network."""
        return Run(self.folder).history

    def __repr__(self) -> str:
        """Scores, folder and what to do next; `print(self.classifier)` shows the layers."""
        head, *parts = self._parts()
        return as_text([f"<{head}>", *parts])

    def _repr_html_(self) -> str:
        return as_html(self._parts())

    def _parts(self) -> list[Part]:
        """A headline, the scores where they were measured, and what comes next."""
        head = f"FineTuned {self.folder}: {self.code.described}"
        predict = "next: RESULT.predict(NEW_SAMPLES) is a table with a row per sample"
        if not (self.folder / "result.json").is_file():
            return [head, "It was not measured yet: finish it with --resume", predict]
        page = f"icone.report({str(self.folder)!r}) writes a page about it"
        return [head, *finetune_parts(self.result), f"{predict}, {page}"]

    def forward(self, samples: Tensor | Array, spacing: Spacing | None = None) -> Tensor:
        """Probabilities (B, names) or numbers (B,) of raw samples (B, C, *spatial), as `icone.load_encoder` takes."""
        prepared = self.preparation.batch(samples, spacing).to(self.classifier.device)
        if self.preparation.crops:
            outputs = mean_over_windows(lambda x: self.classifier(self.views.plain(x)), prepared, self.preparation.size)
        else:
            outputs = self.classifier(self.views.plain(prepared))
        return torch.from_numpy(self.code.decode(outputs.float()))

    def answers(self, dataset: Dataset, batch_size: int | None = None) -> np.ndarray:
        """Probabilities or numbers of all samples of a prepared data set."""
        return self.code.decode(outputs_of(self.classifier, self.views, dataset, batch_size))

    def predict(
        self,
        data: Any = None,
        *,
        batch_size: int | None = None,
        data_root: Path | None = None,
        skip_unreadable: bool = False,
        cache: str | None = None,
        console: Console | None = None,
    ) -> pd.DataFrame:
        """A row per sample of whatever `icone.embed` takes (default: the data of the run), a single one too.

        Columns: `id`, `path`, `prediction`, and the probability `p_NAME` of every class or label.
        """
        check_given(data=data)
        data = data if self.config.tiles is not None else one_sample(data)
        config = without_labels(self.config) if data is None else for_other_data(self.config)
        config = dataclasses.replace(config, skip_unreadable=skip_unreadable)
        config = with_given(config, data_root=data_root, cache=cache)
        with memory_errors():
            way_out = "give it after the folder, icone predict FOLDER NEWPATH"
            source = open_run_data(self.folder, config, data, way_out=way_out)
            console = console or Terminal()
            note_splits(source, config, console)
            dataset = load_with_notes(source, config, self.preparation, console)
            answers = self.answers(dataset, batch_size)
        paths = ["" if path is None else printable(str(path)) for path in dataset.paths]
        table = pd.DataFrame({"id": list(dataset.ids), "path": paths, "prediction": self.code.say(answers)})
        return table.assign(**{f"p_{name}": answers[:, i] for i, name in enumerate(self.code.names)})


@check_arguments
def load_classifier(
    folder: str | Path, device: str = "cpu", *, encoder: nn.Module | None = None, views: Any = None
) -> FineTuned:
    """What `icone finetune` has written into a folder, with its preprocessing, in eval mode.

    A run that was given its encoder or its views as Python objects needs them again, as for `icone.load_encoder`.
    """
    folder = Path(folder)
    record = read_record(folder)
    if not (folder / WEIGHTS).is_file():
        raise InputError(f"{folder} holds no fine-tuned network yet: finish it with --resume")
    config, preparation = from_json(record["pretraining"]), Preparation.from_json(record["preparation"])
    lists = {name: tuple(value) for name, value in record["code"].items() if isinstance(value, list)}
    code = LabelCode(**{**record["code"], **lists})
    given = Given(encoder=encoder, views=views or plain_views(config))
    with own_randomness(torch.device("cpu")):
        classifier = Classifier(make_encoder(config, preparation, given), code.outputs)
    load_weights(classifier, read_tensors(folder / WEIGHTS)[0], folder / WEIGHTS)
    found = FineTuned(classifier, code, preparation, make_views(config, preparation, given), config, folder)
    return found.to(pick_device(device))


@check_arguments
def predict(
    classifier: str | Path | FineTuned,
    data: Any = None,
    *,
    out: Path | None = None,
    encoder: nn.Module | None = None,
    views: Any = None,
    batch_size: int | None = None,
    data_root: Path | None = None,
    skip_unreadable: bool = False,
    device: str = "auto",
    cache: str | None = None,
    console: Console | None = None,
) -> pd.DataFrame:
    """What a fine-tuned network says about samples, a row each; with `out` written as .csv or .parquet.

    `data` is whatever `icone.embed` takes, a single sample too.
    """
    if out is not None:
        if out.suffix not in TABLES:
            raise InputError(f"cannot write {out}: the name must end in {' or '.join(TABLES)}")
        check_target(out)
        refuse_own_file(out)
    if not isinstance(classifier, FineTuned):
        classifier = load_classifier(classifier, device, encoder=encoder, views=views)
    table = classifier.predict(
        data,
        batch_size=batch_size,
        data_root=data_root,
        skip_unreadable=skip_unreadable,
        cache=cache,
        console=console,
    )
    if out is not None:
        write_embeddings(table, out)
    return table


def read_record(folder: Path) -> dict[str, Any]:
    """The config.json of a folder of `icone finetune`."""
    if is_finetuned(folder):
        return Run(folder).read_json("config.json")
    problem = f"{folder} is not a folder of icone finetune (its config.json does not say: {FINETUNED})"
    if not is_pretrained(folder):
        raise no_run(folder, problem if folder.exists() else f"there is no folder {folder}", is_finetuned)
    tuned = [path for path in runs_in(folder.parent, is_finetuned, levels=1) if _came_from(path, folder)]
    if tuned:
        raise no_run(folder, f"{folder} is the run before fine-tuning", lambda path: path in tuned)
    command = shlex.join(["icone", "finetune", str(folder)])
    raise InputError(f"{folder} is a run that was not fine-tuned: train it with labels first, {command}")


def _came_from(tuned: Path, run: Path) -> bool:
    """Whether a folder of `icone finetune` names this run."""
    return Path(str(Run(tuned).read_json("config.json").get("run"))).resolve() == run.resolve()
