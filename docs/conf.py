"""The site: `make docs` builds it into build/docs."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "icone"
author = "The icone developers"
release = version = installed("icone")
html_title = f"icone {version}"

extensions = [
    "myst_parser",  # pages are Markdown, as a Git host shows them
    "sphinx.ext.autodoc",
    "sphinx_gallery.gen_gallery",  # runs examples/gallery
    "sphinx_copybutton",
    "api_reference",  # _extensions/
    "notebooks",
    "repository_links",
]
exclude_patterns = ["_extensions", "results/page.md"]
suppress_warnings = ["config.cache"]  # the gallery's order is a function
nitpicky = True
# Types in signatures are links where they are public; the others are text.
nitpick_ignore_regex = [("py:class", r".*")]

myst_heading_anchors = 3  # page.md#heading
myst_enable_extensions = ["fieldlist"]

highlight_language = "none"  # of fences that name none: output and commands
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
python_maximum_signature_line_length = 100

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py",  # all of them are run
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,  # no times on the pages: they differ from build to build
    "write_computation_times": False,
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "capture_repr": (),  # pages show what scripts print
    "parallel": 2,
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = html_show_copyright = False
