"""`icone.evaluate`: probes and geometry of a run before and after training, or of a folder of seeds; the verdict."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import nn

from icone.api.build import check_given, give_again, given_objects, memory_errors
from icone.api.embed import extract_with_progress, load_encoder, untrained_encoder
from icone.api.evaluated import saved_predictions
from icone.api.evaluation_data import GivenData, changed_settings, read_evaluation_data
from icone.api.few_labels import FinetuneShares, efficiency_table, finetuned_shares, finetuned_table, forget_finished
from icone.config import is_object
from icone.data import Dataset
from icone.data.targets import TaskSetting
from icone.errors import InputError
from icone.evaluation.assessment import Partition, Result, assess, run_probes
from icone.evaluation.bootstrap import group_codes
from icone.evaluation.comparison import Difference, compare_probes
from icone.evaluation.features import FrozenEncoder, drawn_rows, extract_views
from icone.evaluation.label_efficiency import label_efficiency
from icone.evaluation.metrics import METRICS, Embedding, Metric, metric_texts
from icone.evaluation.probes import ProbeResult
from icone.evaluation.recognition import Recognition
from icone.evaluation.verdict import JUDGED_PROBES, TAUGHT, Verdict, judge
from icone.files import replacing, write_json
from icone.methods import method_class
from icone.readable import Part, Readable
from icone.run import Run
from icone.seeds import seed_folders, unequal_training
from icone.terminal import Terminal, counted, say
from icone.validation import check_arguments
from icone.wording import all_in_user_terms

LIDAR_VIEWS = 10
CLASSES_LISTED = 12
"""Classes or labels that a sentence names; result.json holds all."""


@check_arguments
def evaluate(
    run: str | Path | Run,
    data: Any = None,
    *,
    labels: Any = None,
    label_column: tuple[str, ...] = (),
    groups: Any = None,
    group_column: str | None = None,
    task: TaskSetting = "auto",
    test: Any = None,
    test_labels: Any = None,
    encoder: nn.Module | None = None,
    views: Any = None,
    data_root: Path | None = None,
    official_test: bool = False,
    test_fraction: float = 0.2,
    label_fractions: tuple[float, ...] = (),
    finetune_draws: int = 0,
    finetune_epochs: int | None = None,
    from_scratch: bool = False,
    untrained: bool = True,
    geometry_instances: int = 256,
    device: str = "auto",
    cache: str | None = None,
    console: Console | None = None,
) -> Readable:
    """Measure a run's encoder on the data it was trained on; written to its result.json and features.npz.

    The result is a dictionary with the content of result.json, and is shown as the table of `icone evaluate`.

    `data` says where that data is now, or gives it again where it was a Python object; so do `encoder` and `views`.

    - `labels`: a CSV (`label_column` and `group_column` choose columns), a DataFrame, a Series, one label per sample, a
      mapping from ids to labels, or an array (N, K) of 0 and 1. Samples without a label take no part in the probes.
    - `groups`: the group of every sample (patient, well, embryo), in the same ways; no split parts a group.
    - `task`: classification (linear probe and kNN), regression (ridge and nearest neighbours: R², Spearman) or
      multilabel (one-vs-rest logistic regression: AUROC, average precision); "auto" goes by the labels and says so.
    - `test`: an external test set, a path, a name or an object, with `test_labels` or labels of its own. It is prepared
      like the data of the run; probes are trained on the run's data and tested on it.

    - `label_fractions`: probes are also trained on these shares of the labels, several draws each, stratified and with
      whole groups: what is read with few labels, and how many pretraining saves (`label_efficiency` in the result).
    - `finetune_draws`: the encoder is also fine-tuned with each of these shares, in so many draws of labels, the first
      ones of the probes; with `from_scratch` the same network from random weights too. `finetune_epochs` are those of
      `icone.finetune`. Finished fine-tunings are kept until all are done: the same call goes on after an interruption.

    Else the probes are tested on the part that the run held out, on the source's official test split
    (`official_test`), or on a share of `test_fraction`, stratified by class. A run of a supervised method gets no
    probes on samples whose labels it was taught. The encoder before training is measured in the same way, and the
    verdict compares the two; without `untrained` it can only tell a collapse.
    """
    check_given(data=data, labels=labels, groups=groups, test=test, test_labels=test_labels)
    if test_labels is not None and test is None:
        raise InputError("--test-labels are the labels of an external test set: give it with --test")
    if test is not None and official_test:
        raise InputError("--test and --official-test are two test sets: give one of the two")
    shares = FinetuneShares(label_fractions, finetune_draws, finetune_epochs, from_scratch)
    run = run if isinstance(run, Run) else Run.open(run)
    given = given_objects(run, encoder, views, "icone.evaluate(run, {}=…)")
    console = console or Terminal()
    with memory_errors():
        if is_object(run.config.pipeline) and given.views is None and (untrained or geometry_instances):
            raise give_again("views", run.config.pipeline, "icone.evaluate(run, {}=…)")
        trained = load_encoder(run, device, encoder=given.encoder, views=given.views)
        columns = (tuple(label_column), group_column, task)
        settings = changed_settings(run.config, labels, columns, data_root, cache)
        given_data = GivenData.of(run, data, labels, groups, test, test_labels)
        samples = read_evaluation_data(
            run, settings, given_data, official_test, test_fraction, console, finetunes=finetune_draws > 0
        )
        encoders = {"untrained": untrained_encoder(run, samples.datasets[0], device, given)} if untrained else {}
        recognised: Recognition | None = None
        measured: dict[str, dict[str, Any]] = {}
        features: dict[str, np.ndarray] = {}
        probes: dict[str, dict[str, Result]] = {}
        own = slice(None) if test is None else slice(len(samples.datasets[0]))  # what geometry is measured on
        for name, frozen in {**encoders, "trained": trained}.items():  # first what the trained one is compared with
            features[name] = np.concatenate([extract_with_progress(frozen, d, console) for d in samples.datasets])
            seen, classes = _views(run, frozen, samples.datasets[0], geometry_instances)
            probes[name] = run_probes(features[name], samples.partition)
            embedding = Embedding(features[name][own], seen, classes)
            measured[name] = assess(embedding, probes[name], recognised)
            recognised = embedding.recognised
        names = ("trained", *encoders)  # the order of what is shown
        efficiency: dict[str, Any] = {}
        if label_fractions:
            if samples.partition is None:
                raise InputError(f"--label-fractions needs probes, and there are none: {samples.note}")
            efficiency["label_efficiency"] = label_efficiency(
                {name: features[name] for name in names}, samples.partition, label_fractions
            )
            if finetune_draws:
                found = finetuned_shares(run, samples, shares, given, device, console)
                efficiency["label_efficiency"]["fine_tuning"] = found
    comparison = _compare(probes, samples.partition)
    taught = method_class(run.config.method).needs_labels and samples.partition is None
    verdict = judge(measured["trained"], measured.get("untrained"), comparison, TAUGHT if taught else "")
    result = {
        "data": samples.describe() | {"view_samples": 0 if seen is None else len(seen)},
        "verdict": verdict.to_json(),
        "comparison": {name: difference.to_json() for name, difference in comparison.items()},
        **{name: measured[name] for name in names},
        **efficiency,
        **_tested(probes["trained"], samples.partition),
    }
    before: dict[str, Any] = {"untrained": features["untrained"]} if untrained else {}
    if samples.partition is None:
        _note_lost_labels(run, console)
    with run.locked():
        with replacing(run.features_file) as temporary, temporary.open("wb") as file:
            np.savez_compressed(
                file,
                ids=np.array(samples.ids),
                labels=samples.labels,
                groups=samples.groups,
                splits=samples.splits,
                features=features["trained"],
                **saved_predictions(probes["trained"], samples.partition),
                **before,
            )
        write_json(run.result_file, result)
        forget_finished(run)
    return Readable(all_in_user_terms(result), evaluation_parts)  # the file keeps the flags, for whoever opens it


def _note_lost_labels(run: Run, console: Console) -> None:
    """Say that a result with probes is replaced by one without; a damaged one is replaced in silence."""
    with contextlib.suppress(InputError):
        if (result := run.result) is not None and result["data"].get("test"):
            labels = counted(result["data"]["labelled"], "label")
            way_out = "give the labels again to have probes there"
            say(console, f"note: this takes the place of a result with {labels} in {run.result_file}; {way_out}")


def _tested(probes: dict[str, Result], partition: Partition | None) -> dict[str, dict[str, Any]]:
    """The class of every test sample, as a number, and whether each probe is right about it (1) or not (0).

    Where samples share groups, these are numbers too. Two runs that were tested on the same samples are compared by
    this (`icone.paper.paired`).
    """
    right = {name: result.right.astype(int) for name, result in probes.items() if isinstance(result, ProbeResult)}
    if partition is None or not right:
        return {}
    codes = np.unique(partition.labels[partition.test], return_inverse=True)[1]
    groups = group_codes(partition.groups_of(partition.test))
    return {
        "tested": {
            "labels": " ".join(map(str, codes.tolist())),
            **({} if groups is None else {"groups": " ".join(map(str, groups.tolist()))}),
            "right": {name: "".join(map(str, found.tolist())) for name, found in right.items()},
        }
    }


def _compare(probes: dict[str, dict[str, Result]], partition: Partition | None) -> dict[str, Difference]:
    """What the judged probes say about the encoder before and after training."""
    if partition is None or "untrained" not in probes:
        return {}
    labels, groups = partition.labels[partition.test].tolist(), partition.groups_of(partition.test)
    return compare_probes(probes["untrained"], probes["trained"], labels, list(JUDGED_PROBES), groups)


def _views(
    run: Run, encoder: FrozenEncoder, dataset: Dataset, instances: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Features of random views of some samples; and their classes, if the method was taught to unite these."""
    if instances < 2:
        return None, None
    rows = drawn_rows(dataset, instances)
    classes = _taught_classes(run, dataset)[rows] if method_class(run.config.method).needs_labels else None
    return extract_views(encoder, dataset, rows, LIDAR_VIEWS), classes


def _taught_classes(run: Run, dataset: Dataset) -> np.ndarray:
    """The class of every sample that the run was taught, as a number; a sample without one has a number of its own.

    Other labels that are evaluated change nothing about it. Held-out samples have the class of the labels of now, where
    these agree with all that was taught.
    """
    instances, names = run.instances, run.instances["class_names"]
    coded = zip(instances["ids"], instances["labels"], strict=True)
    taught = {sample: names[code] for sample, code in coded if code >= 0}
    coded = zip(dataset.ids, dataset.labels.tolist(), strict=True)
    now = {sample: dataset.class_names[code] for sample, code in coded if code >= 0}
    agree = all(now.get(sample, name) == name for sample, name in taught.items())
    known = {**now, **taught} if agree else taught
    number = {name: code for code, name in enumerate(sorted(set(known.values())))}
    return np.array([number[known[sample]] if sample in known else -1 - row for row, sample in enumerate(dataset.ids)])


def result_table(result: dict[str, Any]) -> Table:
    """The metrics of `evaluate` as a table, untrained encoder first where it was measured."""
    return _metrics_table([result], result["data"]["note"])


def evaluation_parts(result: dict[str, Any]) -> list[Part]:
    """What is said about a result: the tables, the verdict, how sure the scores are, and notes."""
    verdict = Verdict.from_json(result["verdict"])
    tables = filter(None, (result_table(result), efficiency_table(result), finetuned_table(result)))
    texts = (verdict.headline, *verdict.evidence, *score_sentences(result), verdict.advice)
    return [*tables, *filter(None, texts), *(f"note: {note}" for note in notes(result))]


def notes(result: dict[str, Any]) -> list[str]:
    """Sentences about labels and probes that a reader should know."""
    said: dict[str, list[str]] = {}
    for name, value in result["trained"].items():
        if isinstance(value, dict) and value["note"]:
            said.setdefault(value["note"], []).append(name)
    return [*result["data"].get("notes", []), *(f"{', '.join(names)}: {note}" for note, names in said.items())]


def score_sentences(result: dict[str, Any]) -> list[str]:
    """How sure the main score is, and how many test samples there are, a sentence each."""
    measured, sentences = result["trained"], []
    if probe := measured.get("linear_probe"):
        sentences.append(
            f"Linear probe: balanced accuracy {100 * probe['balanced_accuracy']:.1f} %, "
            f"{_interval(result, probe, METRICS['linear_probe'])}."
        )
        counts = [f"{name} {n['train']}/{n['test']}" for name, n in probe["samples_per_class"].items()]
        more = f", … ({len(counts)} classes)" if len(counts) > CLASSES_LISTED else ""
        sentences.append(f"Training/test samples: {', '.join(counts[:CLASSES_LISTED])}{more}.")
    if saved := result.get("label_efficiency", {}).get("saved"):
        sentences.append(saved["text"])
    if probe := measured.get("ridge_probe"):
        sentences.append(
            f"Ridge probe: R² {probe['r2']:.3f}, {_interval(result, probe, METRICS['ridge_probe'])}; "
            f"mean absolute error {probe['mean_absolute_error']:.3g}."
        )
    if probe := measured.get("multilabel_probe"):
        per_label = probe["per_label"].items()
        scores = [f"{name} {score['auroc']:.3f} ({score['positives']} have it)" for name, score in per_label]
        more = f", … ({len(scores)} labels)" if len(scores) > CLASSES_LISTED else ""
        sentences.append(f"AUROC by label: {', '.join(scores[:CLASSES_LISTED])}{more}.")
    return sentences


def _interval(result: dict[str, Any], probe: dict[str, Any], metric: Metric) -> str:
    """The interval of a probe's score, and what was drawn for it."""
    samples, groups = counted(result["data"]["test"], "test sample"), probe.get("groups")
    if probe["interval"] is None:
        return f"without an interval, because all {samples} are of one group" if groups == 1 else "without an interval"
    low, high = map(metric.text, probe["interval"])
    over = samples if groups is None else f"{counted(groups, 'group')} of {samples}"
    return f"95 % interval {low} to {high} (bootstrap over {over})"


def evaluate_seeds(folder: str | Path, *, console: Console | None = None, **settings: Any) -> Readable:
    """The result of `icone.evaluate(run, **settings)` for every run of a folder of seeds, by the name of its folder.

    `folder` holds seed-0, seed-1, …, as `icone pretrain --seeds` writes them.
    """
    folders = seed_folders(folder)
    if not folders:
        raise InputError(f"{folder} holds no folders seed-0, seed-1, … of runs: icone.evaluate measures a single run")
    console = Terminal() if console is None else console
    results = {}
    for number, one in enumerate(folders, start=1):
        say(console, f"evaluating {one} ({number} of {len(folders)})")
        results[one.name] = evaluate(one, **settings, console=console)
    if note := unequal_training([Run(one) for one in folders]):
        say(console, f"note: {note}")
    return Readable(results, seeds_parts)


def seeds_parts(results: Mapping[str, Mapping[str, Any]]) -> list[Part]:
    """What is said about a folder of seeds: the table, and the verdict of every run."""
    return [seeds_table(results), *(f"{name}: {result['verdict']['headline']}" for name, result in results.items())]


def seeds_table(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """The metrics of a folder of seeds as a table."""
    note = next(iter(results.values()))["data"]["note"]
    return _metrics_table(
        list(results.values()), f"mean ± standard deviation of {counted(len(results), 'seed')}; {note}"
    )


def _metrics_table(results: Sequence[Mapping[str, Any]], title: str) -> Table:
    """A row for every metric that all results have, and a column for the encoder before and after training."""
    rows = metric_texts(results)
    columns = [which for which in ("untrained", "trained") if any(which in texts for _, texts in rows)]
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for which in columns:
        table.add_column(which, justify="right")
    for metric, texts in rows:
        table.add_row(metric.heading, *(texts.get(which, "–") for which in columns))
    return table
