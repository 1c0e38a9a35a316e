"""docs/paper-audit.md names tests and commands that exist, and leaves no label of the paper out."""

from __future__ import annotations

import re
from pathlib import Path

from icone.paper.experiments import EXPERIMENTS, NOT_A_RESULT

ROOT = Path(__file__).parents[2]
AUDIT = (ROOT / "docs" / "paper-audit.md").read_text()
ITEMS = [line.split(" | ") for line in AUDIT.splitlines() if re.match(r"\| \d+ \|", line)]


def test_every_item_has_a_test_or_a_command_that_exists() -> None:
    assert [int(item[0].strip("| ")) for item in ITEMS] == list(range(1, len(ITEMS) + 1))
    assert f"{len(ITEMS)} items" in AUDIT
    for number, what, _, checks in ITEMS:
        named = re.findall(r"`([^`]+)`", checks)
        assert named or "nothing to compute" in checks, (number, what)
        for name in named:
            if name.startswith("tests/"):
                path, _, test = name.partition("::")
                text = (ROOT / path).read_text()
                assert test == "*" or f"def {test}(" in text, name
            else:
                words = name.split()
                assert words[:2] == ["icone", "paper"], name
                assert words[2] in ("run", "show"), name
                assert words[3] in EXPERIMENTS, name


def test_no_label_of_the_paper_is_left_out() -> None:
    labels = {label for experiment in EXPERIMENTS.values() for label in experiment.labels} | set(NOT_A_RESULT)
    places = {item[2] for item in ITEMS}
    missing = {label for label in labels if not any(label in place for place in places)}
    assert not missing
    for label in labels:
        own = [item[3] for item in ITEMS if label in item[2]]
        names = [name for name, experiment in EXPERIMENTS.items() if label in experiment.labels]
        assert all(any(f" {name}" in checks for checks in own) for name in names), label
