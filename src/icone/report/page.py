"""One HTML file that opens from disk and needs no network: style, plotting library, data and script inside.

File names, labels and table columns are untrusted text. They travel as JSON in a script element that is never
executed, with every character escaped that could end it; the script puts them on the page as text only; and the
page's own policy forbids any script but ours, and any connection.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any

from icone.errors import optional

with optional("report", "icone report"):
    from plotly.offline import get_plotlyjs

ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

SCRIPTS = (
    "base.js", "verdict.js", "pictures.js", "charts.js", "map.js", "tables.js", "probes.js", "finetuned.js", "main.js",
)  # fmt: skip


def page(content: dict[str, Any]) -> str:
    """The whole page for `content`: {"title": …, "runs": [one `run_content` each]}.

    With the kind "fine-tuning" the runs are one `finetuned_content` each.
    """
    script, plotting = _script(), get_plotlyjs()
    content = share_sheets(content)
    parts = {
        "policy": _policy([plotting, script]),
        "style": _asset("page.css"),
        "plotly": plotting,
        "data": embed_json(content),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def share_sheets(content: dict[str, Any]) -> dict[str, Any]:
    """The same content with the thumbnails of all runs in one list: runs of the same samples share theirs."""
    sheets: list[Any] = []
    runs = []
    for run in content["runs"]:
        if (own := run.get("map", {}).get("thumbnails")) is not None:
            if own not in sheets:
                sheets.append(own)
            run = {**run, "map": {**run["map"], "thumbnails": sheets.index(own)}}
        runs.append(run)
    return {**content, "runs": runs, "sheets": sheets}


def embed_json(content: Any) -> str:
    """JSON that can stand inside a script element whatever its strings hold; plain ASCII.

    >>> embed_json({"id": "</script><!--"})
    '{"id":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&\u2028\u2029]", lambda match: ESCAPES[match[0]], text)


def _policy(scripts: list[str]) -> str:
    """Only these scripts run, nothing is fetched. The plotting library compiles its WebGL code at run time (eval)."""
    allowed = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {allowed} 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _script() -> str:
    """The page's own script: the parts share one scope, and nothing of it is global."""
    return '"use strict";\n(() => {\n' + "".join(_asset(name) for name in SCRIPTS) + "})();\n"


def _asset(name: str) -> str:
    return (files("icone.report") / "assets" / name).read_text(encoding="utf-8")
