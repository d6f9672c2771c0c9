"""What a run is made of: a line on the overview, and a page without secrets."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support import record_run_file
from tests.tools.web.browsing import chromium
from tests.tools.web.conftest import Client
from tools.web.export import write_export
from tools.web.runs import named_runs

SECRET = "S3CRET"


@pytest.fixture
def secretive(board_run: Path, tmp_path: Path) -> Path:
    """Give a run whose hooks and environment have secrets."""
    run = tmp_path / "secretive"
    shutil.copytree(board_run, run)
    file = yaml.safe_load((run / "run.yaml").read_text())
    file["config"]["hooks"] = {"on_end": [["curl", "-H", f"Authorization: Bearer {SECRET}"]]}
    file["config"]["environment"]["kwargs"] = {"api_key": SECRET, "host": f"db://me:{SECRET}@lab"}
    (run / "run.yaml").write_text(yaml.safe_dump(file))
    record_run_file(run)
    return run


def test_no_page_and_no_file_has_a_secret(secretive: Path, board_run: Path, tmp_path: Path) -> None:
    client = Client([secretive, board_run])
    document = client.get("/secretive/configuration.json").text
    assert json.loads(document)["configuration"]["hooks"]["on_end"] == [["curl", "(not shown)"]]
    names = ("configuration.html", "configuration.json", "diff-with-board.json", "index.html")
    assert all(SECRET not in client.get(f"/secretive/{name}").text for name in names)
    write_export(named_runs([secretive, board_run]), tmp_path / "page")
    for file in (tmp_path / "page").rglob("*.*"):
        # A card includes the environment's arguments, which are needed to play against it.
        assert SECRET not in file.read_text() or re.match("(player|weights)-", file.name), file


def test_without_a_browser_tests_fail_and_name_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        pytest.fail.Exception, match="tests of the page need: apt-get install chrom"
    ):
        chromium()
