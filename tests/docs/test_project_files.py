"""Files about the project agree with it: versions, make targets, pins, the length of the README."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import arena
from arena.metrics.tracker import TRACKERS
from docs.generate import configuration, picture
from tests.docs.pages import ROOT
from tests.support import run_process

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_versions_are_equal() -> None:
    assert read("CITATION.cff")["version"] == PROJECT["project"]["version"] == arena.__version__
    assert read("CITATION.cff")["title"] == "Arena"


def test_the_readme_fits_three_screens() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    (python,) = re.findall(r"```python\n(.*?)```", "\n".join(lines) + "\n", re.DOTALL)
    assert len([line for line in python.splitlines() if line]) <= 20


def test_workflows_and_hooks_run_targets_that_there_are() -> None:
    jobs = read(".github/workflows/tests.yml")["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    hooks = read(".pre-commit-config.yaml")["repos"][0]["hooks"]
    run = [*steps, *(hook["entry"] for hook in hooks)]
    assert {"make test", "make check", "make docs"} <= set(run)
    assert {command.removeprefix("make ") for command in run} <= TARGETS


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_templates_of_issues_ask_for_something(name: str) -> None:
    template = read(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= template.keys()
    assert any(field.get("validations", {}).get("required") for field in template["body"])


@pytest.mark.parametrize(
    ("file", "required"),
    [
        ("constraints-docs.txt", PROJECT["dependency-groups"]["docs"]),
        (
            "constraints-trackers.txt",
            [one for name in TRACKERS for one in PROJECT["project"]["optional-dependencies"][name]],
        ),
    ],
)
def test_packages_beside_the_others_are_pinned_once(file: str, required: list[str]) -> None:
    def pins(name: str) -> set[str]:
        lines = (ROOT / name).read_text().splitlines()
        return {line.split("==")[0].lower() for line in lines if "==" in line}

    own = pins(file)
    assert {re.split(r"[<>=]", one)[0] for one in required} <= own
    assert own & pins("constraints.txt") == set()


def test_the_picture_shows_the_standings_and_asks_for_no_other_host() -> None:
    lines: list[dict[str, Any]] = [
        {
            "player": f"player/p{index:03d}", "rating": 683.2, "rating_low": 617.0,
            "rating_high": 748.4, "matches": 4724, "generation": 1, "agent_steps": 1396333,
            "parent": None, "state": "active", "role": "main", "wins": 3, "draws": 4717,
            "losses": 4, "mean_return": 0.5, "exploitability": None,
            "champion": index == 0, "same_as": None,
        }
        for index in range(12)
    ]  # fmt: skip
    drawn = picture.draw({"populations": {"player": lines}}).replace("&#160;", " ")
    assert "617..748" in drawn
    assert "p008" in drawn
    # The picture shows the output of `arena league`: short names, and the number of hidden rows.
    assert "player/p000" not in drawn
    assert "3 more rows hidden" in drawn
    stored = (ROOT / "docs/_static/standings.svg").read_text()
    for svg in (drawn, stored):
        assert set(re.findall(r"https?://[^\s\"']+", svg)) <= {
            "http://www.w3.org/2000/svg",
            "https://www.textualize.io",
        }
        assert "url(http" not in svg


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
