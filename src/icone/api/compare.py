"""`icone.compare`: whether runs, or fine-tunings, differ in their main score, in a sentence for all but the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icone.api.evaluated import evaluate_command, finetuned_result, read_predictions
from icone.api.partition import GEOMETRY_ONLY
from icone.api.predict import FineTuned
from icone.api.summaries import PROBES
from icone.errors import InputError
from icone.evaluation.metrics import METRICS, Metric
from icone.evaluation.paired_bootstrap import Predictions, ScoreDifference, score_difference
from icone.readable import Part, Readable
from icone.run import Run
from icone.seeds import SeedGroup, expand_seeds, group_seeds
from icone.terminal import counted, either
from icone.validation import check_arguments
from icone.wording import all_in_user_terms

MAIN_SCORES = {
    "linear_probe": "of the linear probe", "ridge_probe": "of R² (ridge probe)",
    "multilabel_probe": "of the mean AUROC (one-vs-rest probe)",
}  # fmt: skip
"""What a difference of the main score is a difference of."""
FINETUNED_SCORES = {
    "linear_probe": "of balanced accuracy", "ridge_probe": "of R²", "multilabel_probe": "of the mean AUROC",
}  # fmt: skip
"""The same for the scores of fine-tuned networks."""


@check_arguments
def compare(runs: Sequence[str | Path | Run | FineTuned]) -> Readable:
    """Say whether evaluated runs differ in their main score: balanced accuracy of the linear probe, R², or mean AUROC.

    `runs` are run folders, or folders of seeds, which count as one. They must have been tested on the same samples with
    the same labels. The best one is compared with every other: the difference, its 95 % interval over the test samples
    (and over seeds), and whether these tell the two apart.

    Folders of `icone.finetune`, or what it returns, are compared in the same way, by the score of the network.

    The result is a dictionary, shown as its sentences:

    - `metric`: the name of the score; None where nothing could be compared;
    - `pairs`: `first` (the best), `second`, `difference`, `low`, `high`, `ahead` (whether it is sure and a point or
      more) and `sentence`;
    - `left_out`: a sentence for every run that is not compared, with the reason; `notes`: what else to know.
    """
    found = expand_seeds([one.folder if isinstance(one, FineTuned) else one for one in runs])
    check_one_kind(found, "compare each kind by itself")
    groups = group_seeds([run if run.is_finetuned else Run.open(run.folder) for run in found])
    if len(groups) < 2:
        raise InputError("a comparison needs two runs, or two folders of seeds: give another one")
    return Readable(all_in_user_terms(compare_groups(groups)), comparison_parts)


def check_one_kind(runs: Sequence[Run], way_out: str) -> None:
    """Refuse pretrainings beside fine-tunings: their scores are of different things."""
    tuned = [run for run in runs if run.is_finetuned]
    if tuned and len(tuned) < len(runs):
        raise InputError(f"{tuned[0].folder} is a fine-tuning and others are pretrainings: {way_out}")


def compare_groups(groups: Sequence[SeedGroup]) -> dict[str, Any]:
    """The result of `compare` for runs that are open, and grouped by their folder of seeds; settings are flags."""
    sides, left_out = _sides(groups)
    content: dict[str, Any] = {"metric": None, "pairs": [], "left_out": left_out, "notes": []}
    if len(sides) > 1:
        metric = METRICS[PROBES[sides[0].predictions[0].task]]
        best = max(sides, key=lambda side: side.score)
        others = sorted((side for side in sides if side is not best), key=lambda side: -side.score)
        pairs = [_pair(best, other, metric) for other in others]
        content |= {"metric": metric.name, "pairs": pairs, "notes": _notes(sides)}
    return content


def comparison_parts(found: dict[str, Any]) -> list[Part]:
    """What a comparison says about its runs: pairs, then who is left out, then notes."""
    sentences = [pair["sentence"] for pair in found["pairs"]]
    return [*sentences, *found["left_out"], *(f"note: {note}" for note in found["notes"])]


@dataclass(frozen=True, eq=False)
class _Side:
    """A run or a folder of seeds that can be compared."""

    name: str
    runs: tuple[Run, ...]
    predictions: list[Predictions]
    labelled: list[int | None]
    """Samples with labels that each of its probes, or fine-tuned networks, learned from."""

    @property
    def score(self) -> float:
        return sum(one.parts()[0] for one in self.predictions) / len(self.predictions)

    @property
    def is_finetuned(self) -> bool:
        return self.runs[0].is_finetuned

    @property
    def seeds(self) -> list[tuple[int, ...]]:
        return [_seeds_of(run) for run in self.runs]


def _seeds_of(run: Run) -> tuple[int, ...]:
    """The seed of a run; of a fine-tuning those of the pretraining and its own."""
    if not run.is_finetuned:
        return (run.config.seed,)
    record = run.read_json("config.json")
    return record["pretraining"]["seed"], record["settings"]["seed"]


def _method_of(run: Run) -> str:
    return str(run.read_json("config.json")["pretraining"]["method"]) if run.is_finetuned else run.config.method


def _sides(groups: Sequence[SeedGroup]) -> tuple[list[_Side], list[str]]:
    """What can be compared with the first that can, and of every other a sentence that says why not."""
    sides: list[_Side] = []
    left_out = []
    alone: dict[str, list[str]] = {}
    names = _names(groups)
    for group, name in zip(groups, names, strict=True):
        tested = _read(group)
        if isinstance(tested, str):
            alone.setdefault(tested, []).append(name)
            continue
        reference = sides[0].predictions[0] if sides else tested[0]
        found = [why for one in tested if (why := why_not_the_same(reference, one))]
        if found and sides:
            left_out.append(f"{name} is not compared with {sides[0].name}: {found[0]}.")
        elif found:
            left_out.append(f"{name} is not compared, because its seeds do not go together: {found[0]}.")
        else:
            labelled = [run.read_json("result.json")["data"].get("train") for run in group.runs]
            sides.append(_Side(name, group.runs, tested, labelled))
    whole = [f"{_joined(names)} {either(len(names), 'is', 'are')} not compared: {why}." for why, names in alone.items()]
    return sides, [*whole, *left_out]


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _names(groups: Sequence[SeedGroup]) -> list[str]:
    """The names of the runs, with the method where it tells them apart and the name does not say it."""
    methods = [_method_of(group.runs[0]) for group in groups]
    tells = len(set(methods)) > 1
    return [
        f"{group.name} ({method})" if tells and method not in group.name else group.name
        for group, method in zip(groups, methods, strict=True)
    ]


def _read(group: SeedGroup) -> list[Predictions] | str:
    """What the probes, or the fine-tuned networks, of all runs say, or why one of them has none."""
    found = []
    for run in group.runs:
        tested = _read_finetuned(run) if run.is_finetuned else _read_evaluated(run)
        if isinstance(tested, str):
            return tested
        found.append(tested)
    return found


def _read_evaluated(run: Run) -> Predictions | str:
    if run.result is None:
        raise InputError(f"{run.folder} {run.why_no_result}: run `{evaluate_command(run)}` first")
    result = run.read_json("result.json")  # settings are flags in it
    task = result["data"].get("task", "classification")
    if PROBES[task] not in result["trained"]:
        why: str = result["data"]["note"]  # there are no labels, or a supervised method was taught them
        return why.replace(GEOMETRY_ONLY, "").rstrip(".")
    again = f"evaluate again to compare (`{evaluate_command(run)}`, with the same labels)"
    unknown = f"the evaluation does not hold what the probe says about each test sample; {again}"
    return read_predictions(run, task) or unknown


def _read_finetuned(run: Run) -> Predictions | str:
    task = finetuned_result(run)["data"]["task"]
    unknown = "its folder, of an earlier version, does not hold what the network says about each test sample"
    return read_predictions(run, task) or f"{unknown}; fine-tune again to compare"


def why_not_the_same(first: Predictions, second: Predictions) -> str:
    """Why two evaluations were not of the same test samples with the same labels, or nothing."""
    if first.task != second.task:
        return f"its labels are for {second.task}, and those of the other for {first.task}"
    if first.ids != second.ids:
        shared = len(set(first.ids) & set(second.ids))
        sizes = f"{len(second.ids):,} and {len(first.ids):,} test samples"
        return f"they were tested on different samples ({sizes}, {shared:,} of them in both)"
    differing = (first.labels != second.labels).nonzero()[0]
    if len(differing):
        have = either(len(differing), "has another label", "have other labels")
        one = differing[0]
        such = f"{first.ids[one].split('/', 1)[1]}: {second.labels[one]}, not {first.labels[one]}"
        return f"{counted(len(differing), 'test sample')} {have} ({such})"
    if first.names != second.names:
        return "their probes are scored on different labels, because those of their training samples differ"
    return ""


def unequal_evaluation(group: SeedGroup) -> str:
    """A sentence where runs of one group were not tested on the same samples with the same labels. Else nothing."""
    tested = _read(group)
    if isinstance(tested, str):
        return ""
    for run, other in zip(group.runs[1:], tested[1:], strict=True):
        if why := why_not_the_same(tested[0], other):
            names = f"{group.runs[0].folder.name} and {run.folder.name}"
            return f"the seeds were not evaluated alike, so that their mean is of different tests ({names}: {why})"
    return ""


def _pair(best: _Side, other: _Side, metric: Metric) -> dict[str, Any]:
    found = score_difference(best.predictions, other.predictions, paired_seeds=_are_paired(best, other))
    score = (FINETUNED_SCORES if best.is_finetuned else MAIN_SCORES)[metric.name]
    return {
        "first": best.name,
        "second": other.name,
        "difference": found.value,
        "low": found.low,
        "high": found.high,
        "samples": found.samples,
        "runs": list(found.runs),
        "ahead": found.is_ahead,
        "sentence": _sentence(best.name, other.name, found, metric, score),
    }


def _are_paired(best: _Side, other: _Side) -> bool:
    return len(best.seeds) > 1 and best.seeds == other.seeds


def _sentence(first: str, second: str, found: ScoreDifference, metric: Metric, score: str) -> str:
    """Who is ahead, by how much, and whether the test samples tell."""
    tests = counted(found.samples, "test sample")
    if metric.score == "r2" and found.scores[0] <= 0:
        return f"Neither {first} nor {second} reads more of the numbers than their mean says (R² is not above 0)."
    seeds = "" if max(found.runs) == 1 else f" and {_seeds(found.runs)}"
    low, high = (_number(value, metric) for value in (found.low, found.high))
    size = f"{_number(found.value, metric)}{' points' if metric.percent else ''} {score}"
    if not found.is_sure or float(metric.text(found.value)) == 0:
        these = "This" if found.samples == 1 and not seeds else "These"
        do = "does" if these == "This" else "do"
        apart = f"{these} {tests}{seeds} {do} not tell {first} and {second} apart"
        ahead = f", with {first} ahead" if float(metric.text(found.value)) else ""
        return f"{apart}: the difference is {size} (95 % interval {low} to {high}){ahead}."
    ahead = f"{first} is ahead of {second} by {size} (95 % interval {low} to {high} over the same {tests}{seeds})"
    return f"{ahead}." if found.is_ahead else f"{ahead}: that is sure, but less than a point."


def _seeds(runs: tuple[int, int]) -> str:
    return counted(runs[0], "seed") if runs[0] == runs[1] else f"{runs[0]} and {runs[1]} seeds"


def _number(value: float, metric: Metric) -> str:
    """A number as tables write it, with a minus sign in place of a hyphen."""
    return metric.text(value).replace("-", "−")


def _notes(sides: Sequence[_Side]) -> list[str]:
    """What the intervals do not hold, and what differs besides the encoders."""
    notes = []
    if any(len(side.runs) == 1 for side in sides):
        notes.append(
            "the interval is that of the test samples alone, and another seed may give another order; folders that "
            "hold several seeds (seed-0, seed-1, …) are compared over seeds too"
        )
    labels = {count for side in sides for count in side.labelled if count is not None}
    if len(labels) > 1:
        counts = " to ".join(f"{count:,}" for count in (min(labels), max(labels)))
        who = "they" if sides[0].is_finetuned else "their probes"
        notes.append(f"{who} learned from different numbers of labelled samples, {counts}")
    if (groups := len(set(sides[0].predictions[0].groups) - {""})) and groups < len(sides[0].predictions[0].ids):
        notes.append(f"samples of a group count together: the test samples are of {counted(groups, 'group')}")
    if len(sides) > 2:
        notes.append(
            f"the best of {len(sides)} is compared with each of the others; that it may be best by luck is not in the "
            "intervals"
        )
    return notes
