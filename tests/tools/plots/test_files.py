"""Files of plots: their kinds, equal bytes, hostile names, and mistakes of users."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError
from populations.views.views import VIEWS
from tests.tools.plots import documents
from tools.league.command import league
from tools.plots.files import write_plot
from tools.plots.kinds import PLOTS, SUFFIXES, find_plot

BEGINNINGS = {".png": b"\x89PNG\r\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


def test_each_plot_is_of_a_view_and_begins_with_its_document() -> None:
    for name, plot in PLOTS.items():
        assert plot.documents[0] == name
        assert set(plot.documents) <= set(VIEWS)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_suffix_says_the_kind_of_file(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a plot{suffix.upper()}"
    file.write_text("old")
    write_plot(find_plot("standings", file), documents.everything(), file)
    assert file.read_bytes().startswith(BEGINNINGS[suffix])
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("view", PLOTS)
def test_hostile_names_are_text_and_equal_documents_give_equal_bytes(
    tmp_path: Path, view: str
) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    for file in (first, second):
        write_plot(PLOTS[view], documents.everything(), file)
    assert first.read_bytes() == second.read_bytes()
    texts = [
        "".join(one.itertext()) for one in ElementTree.parse(first).iter() if "text" in one.tag
    ]
    assert max(len(text) for text in texts if "{" not in text) < 64
    assert not any(0x202E in map(ord, text) for text in texts)
    if view in ("standings", "payoff"):
        assert any("$\\frac{1}$" in text for text in texts)


def test_a_pdf_has_no_date(tmp_path: Path) -> None:
    files = [tmp_path / "a.pdf", tmp_path / "b.pdf"]
    for file in files:
        write_plot(PLOTS["payoff"], documents.everything(), file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert b"CreationDate" not in files[0].read_bytes()


def test_a_users_style_changes_no_file(tmp_path: Path) -> None:
    import matplotlib as mpl

    files = [tmp_path / "a.svg", tmp_path / "b.svg"]
    write_plot(PLOTS["ratings"], documents.everything(), files[0])
    with mpl.rc_context({"axes.facecolor": "red", "font.size": 20.0, "lines.linewidth": 9.0}):
        before = dict(mpl.rcParams)
        write_plot(PLOTS["ratings"], documents.everything(), files[1])
        assert dict(mpl.rcParams) == before
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    for file in (tmp_path / "none" / "a.png", tmp_path / "folder.png"):
        (tmp_path / "folder.png").mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match="cannot be written: "):
            write_plot(PLOTS["payoff"], documents.everything(), file)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


def test_mistakes_are_told_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"events has no plot.*standings, ratings, payoff"):
        find_plot("events", Path("a.png"))
    with pytest.raises(ConfigError, match=r"one of \.png, \.svg, \.pdf, not \.jpeg"):
        find_plot("ratings", Path("a.jpeg"))
    with pytest.raises(ConfigError, match="not nothing"):
        find_plot("ratings", Path("png"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        find_plot("ratings", Path("a.png"))


@pytest.mark.parametrize(
    "other", [{"as_csv": True}, {"watch": True}, {"exploitability": True}, {"optuna": Path("a.db")}]
)
def test_options_that_would_change_nothing_are_refused(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"--plot and --[a-z]+ exclude each other"):
        league(Path("none"), view="standings", plot=Path("a.png"), **other)
    with pytest.raises(ConfigError, match="--metric belongs to the view metrics"):
        league(Path("none"), view="ratings", metric=["loss/value"])


def test_the_command_draws_a_run_and_says_where(
    board_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "standings.svg"
    league(board_run, view="standings", plot=file, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "schema": 1,
        "run": str(board_run),
        "view": "standings",
        "file": str(file),
    }
    assert ">p000<" in file.read_text() or "p000\n" in file.read_text()
    league(board_run, view="lineage", plot=tmp_path / "lineage.svg")
    assert "lineage.svg: plot of lineage" in capsys.readouterr().out
