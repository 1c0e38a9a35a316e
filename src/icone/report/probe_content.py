"""What the page says about probes: untrained beside trained, classes with their intervals, few labels."""

from __future__ import annotations

from typing import Any

from icone.api.summaries import NETWORKS, TITLES
from icone.evaluation.metrics import METRICS, sentence_case
from icone.terminal import counted


def probe_content(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The probes of the trained encoder, each with that of the untrained one, and intervals of its classes."""
    trained, untrained = result["trained"], result.get("untrained", {})
    found = [metric for metric in METRICS.values() if metric.probe == metric.name and metric.name in trained]
    return [
        {
            "name": metric.short,
            **trained[metric.name],
            "class_intervals": class_intervals(trained[metric.name]),
            "untrained": untrained.get(metric.name),
        }
        for metric in found
    ]


def class_intervals(probe: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Wilson's 95 % interval (1927) of the share of test samples of each class that are right.

    >>> low, high = class_intervals({"classes": ["a"], "confusion": [[5]]})["a"]
    >>> round(low, 3), round(high, 3)
    (0.566, 1.0)
    """
    from scipy.stats import binomtest

    intervals = {}
    for i, name in enumerate(probe.get("classes", [])):
        counts = probe["confusion"][i]
        if total := sum(counts):
            found = binomtest(counts[i], total).proportion_ci(method="wilson")
            intervals[name] = float(found.low), float(found.high)
    return intervals


def efficiency_content(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Curves of score over share of the labels, one for every probe and encoder, and the sentence on what is saved."""
    if found is None:
        return None
    curves = [
        {
            "probe": sentence_case(METRICS[probe].axis),
            "encoder": encoder,
            "scale": METRICS[probe].scale,
            "points": points,
        }
        for encoder, probes in found["points"].items()
        for probe, points in probes.items()
    ]
    saved = found["saved"]
    note = f"Mean and 95 % interval over {found['draws']} draws of labels; all labels are one draw."
    notes = {curve["probe"]: note for curve in curves}
    if saved:  # of one probe
        notes[sentence_case(METRICS[saved["probe"]].axis)] = f"{note} {saved['text']}"
    if tuned := found.get("fine_tuning"):
        metric = METRICS[tuned["metric"]]
        name = f"Fine-tuning, {TITLES[metric.name]}"
        networks = {NETWORKS[network]: points for network, points in tuned["points"].items()}
        networks[NETWORKS["probe"]] = found["points"]["trained"][metric.name]
        curves += [{"probe": name, "encoder": n, "scale": metric.scale, "points": p} for n, p in networks.items()]
        draws = f"{counted(tuned['draws'], 'draw')} of labels (linear probe: {found['draws']})"
        notes[name] = f"Mean and 95 % interval over {draws}; all labels are one draw."
    return {"curves": curves, "labels": found["labels"], "notes": notes}
