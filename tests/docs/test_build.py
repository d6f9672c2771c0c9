"""The documents are built without a warning, with every key where it can be linked to."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from docs.generate import configuration
from tests.docs.pages import ROOT
from tests.support import run_process


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    importlib.util.find_spec("sphinx") is None, reason="make docs installs Sphinx, not make setup"
)
def test_the_documents_are_built_without_a_warning(tmp_path: Path) -> None:
    html = tmp_path / "html"
    options = ["-W", "--keep-going", "-n", "-q", "-b", "html", "-d", str(tmp_path / "doctrees")]
    done = run_process(
        [sys.executable, "-m", "sphinx", *options, "docs", str(html)], cwd=ROOT, timeout_s=280
    )
    assert (done.returncode, done.stderr) == (0, "")
    page = (html / "reference" / "configuration.html").read_text()
    listed = [key for key in configuration.all_keys() if len(key.path) > 2]
    missing = [key.name for key in listed if f'id="confval-{key.name}"' not in page]
    assert missing == []
    assert "cmdoption-arena-launch-resume" in (html / "reference" / "commands.html").read_text()
