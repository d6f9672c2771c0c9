"""Configuration of Sphinx: `make docs`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, NewType, get_args, get_origin

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent
# For `docs.generate`, which makes the reference from the code.
sys.path.insert(0, str(ROOT))

import arena  # noqa: E402 - after the path
from arena import types  # noqa: E402

project = "Arena"
author = "The Arena authors"
project_copyright = "2026, the Arena authors"
release = version = arena.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docs.generate.sphinx_directive",
]
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
# Headings can be linked to as on GitHub, so that pages read well there, too.
myst_heading_anchors = 4
# The list of decisions is included by decisions/index.md.
exclude_patterns = ["_build", "generate", "decisions/README.md"]

# Literal blocks of docstrings are texts as often as Python.
highlight_language = "text"
# Options of commands keep their two dashes.
smartquotes = False

html_theme = "furo"
html_title = f"Arena {release}"
html_static_path = ["_static"]
html_css_files = ["arena.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
python_use_unqualified_type_names = True
toc_object_entries = False

# Types of other projects, and Arena's own that are not public, are shown without a link. Every
# other reference must resolve.
nitpick_ignore_regex = [("py:.*", ".*")]


# Patterns of ids would be read as markup.
for name, kind in list(vars(types).items()):
    if isinstance(kind, NewType) and get_origin(kind.__supertype__) is Annotated:
        kind.__supertype__ = get_args(kind.__supertype__)[0]
    elif get_origin(kind) is Annotated:
        setattr(types, name, get_args(kind)[0])


def copy_benchmarks(_app: Sphinx) -> None:
    """Copy the dated figures into the documents, as they are."""
    target = DOCS / "benchmarks"
    for old in target.glob("2*.md"):
        old.unlink()
    for page in sorted((ROOT / "benchmarks").glob("2*.md")):
        shutil.copy2(page, target / page.name)


def for_readers(_app: Sphinx, _what: str, _name: str, *rest: object) -> None:
    """Take out of a docstring what is for those who work on Arena: where its tests are."""
    lines = rest[-1]
    assert isinstance(lines, list), "autodoc's last argument is the lines"
    kept = "\n".join(lines).split("\n\n")
    lines[:] = "\n\n".join(part for part in kept if not part.startswith("Tests: ")).split("\n")
    first = lines[0].removeprefix("START HERE: ")
    lines[0] = first[:1].upper() + first[1:]


def setup(app: Sphinx) -> None:
    """Connect what is done before and during a build."""
    app.connect("autodoc-process-docstring", for_readers)
    # `config-inited` comes before Sphinx looks for pages.
    app.connect("config-inited", lambda app, _config: copy_benchmarks(app))
