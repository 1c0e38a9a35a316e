"""Prose of README.md and of the site can be read: a paragraph or an item of a list with many numbers is a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST = 4
"""Numbers that a reader can hold."""
NO_TEXT = re.compile(r"^(?P<fence>```+|~~~+|:::+).*?^(?P=fence)|^---\n.*?^---$|<!--.*?-->", re.S | re.M)
NAMES = re.compile(
    r"`[^`]*`|\]\([^)]*\)|<[^>]*>|https?://\S+"  # code and addresses
    r"|\b[A-Za-z]\w*(?:[-/][A-Za-z]*)*[-/]\d\w*|\b[A-Z][A-Za-z]*\d\w*|\b\d+D\b"  # kNN-5, ViT-S/16, H200, 3D
    r"|\d{4}-\d\d-\d\d|\b\d{4}\.\d{4,5}\b|et al\.,? \(?\d{4}|\(?(?<=[a-z] )20\d\d\b"  # dates and papers
    r"|(?:[Vv]ersions?|PyTorch|Python|Docker|CUDA|torch) \d[\d.]*(?:(?: to | and |, )\d[\d.]*)*"
    r"|\b[A-Za-z]\s?[=≥≤<>]\s?[\d.,]*\d(?:(?:, | and | or | to | … )\d[\d,.]*)*"  # B = 1, 2 and 4
    r"|\b\d+[²³]|\b\d+(?:\s?×\s?\d+)+"  # 224², 64 × 64
)
NUMBER = re.compile(r"(?<![\w.])[+−-]?\d[\d.,]*(?:e[-−]?\d+)?(?:\s?(?:±|–|to|/)\s?[+−-]?\d[\d.,]*)*")


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, each in one line; no tables, headings, pictures and code."""
    lines: list[str] = []
    for line in [*NO_TEXT.sub("", text).split("\n"), ""]:
        line = line.strip()
        begins = re.match(r"[-*] |\d+\. ", line)
        if not line or begins or line.startswith(("|", "#", "![", ">")):
            if lines:
                yield " ".join(lines)
            lines = [line[begins.end() :]] if begins else []
        else:
            lines.append(line)


def numbers(paragraph: str) -> list[str]:
    """Numbers of a paragraph that are no parts of names, settings of one letter, sizes or dates.

    >>> numbers("ViT-S/16 at 224² with B = 1, 2 and 4 (kNN-5, H200): 3.5 ± 0.1 against 2.0, and `--size 64`, in 3D")
    ['3.5 ± 0.1', '2.0,']
    """
    return NUMBER.findall(NAMES.sub(" ", paragraph))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_paragraph_has_few_numbers(page: Path) -> None:
    crowded = [(len(found), text) for text in paragraphs(page.read_text()) if len(found := numbers(text)) > MOST]
    assert not crowded, f"write these paragraphs as tables or lists: {crowded}"


def test_a_crowded_paragraph_is_found() -> None:
    prose = "# 1\n\nOf 20 seeds 14 gain 1.1 points,\n15 lose 7.0.\n\n- 1 2 3\n- 4 5\n\n"
    text = f"{prose}| 1 | 2 | 3 | 4 | 5 |\n\n```\n1 2 3 4 5\n```"
    found = [numbers(paragraph) for paragraph in paragraphs(text)]
    assert [len(one) for one in found] == [5, 3, 2]
