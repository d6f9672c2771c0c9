"""Files of charts: their kinds, equal bytes, hostile names, and mistakes of users."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError
from docs.generate.page_script import script
from populations.views.views import VIEWS
from tests.populations.views import documents
from tools.league.command import league
from tools.show.chart_files import SUFFIXES, find_figure, write_chart, write_figure
from tools.web.render import SCRIPTS, static_files

FIGURES = {name: view.figure for name, view in VIEWS.items() if view.figure is not None}
ROOT = Path(__file__).parents[3]
BEGINNINGS = {".png": b"\x89PNG\r\n", ".svg": b"<svg", ".pdf": b"%PDF-"}


def write(view: str, file: Path, **changed: Any) -> bytes:
    """Write a view of the documents that it takes; return the file's bytes."""
    figure = FIGURES[view]
    every = {**documents.everything(), **changed}
    chosen = {name: every[name] for name in figure.documents}
    write_figure(figure, chosen, file, populations=["player"])
    return file.read_bytes()


def texts_of(svg: bytes) -> list[str]:
    """Return the texts of a picture."""
    return [
        "".join(one.itertext()) for one in ElementTree.fromstring(svg).iter() if "text" in one.tag
    ]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("view", ["standings", "lineage"])
def test_a_suffix_says_the_kind_of_file(tmp_path: Path, suffix: str, view: str) -> None:
    file = tmp_path / f"a plot{suffix.upper()}"
    file.write_text("old")
    assert write(view, file).startswith(BEGINNINGS[suffix])
    assert list(tmp_path.iterdir()) == [file]
    if suffix == ".svg":
        assert 'width="504pt"' in file.read_text()


@pytest.mark.parametrize("view", FIGURES)
def test_hostile_names_are_text_and_equal_documents_give_equal_bytes(
    tmp_path: Path, view: str
) -> None:
    first = write(view, tmp_path / "first.svg")
    assert write(view, tmp_path / "second.svg") == first
    texts = texts_of(first)
    assert texts
    assert max(map(len, texts)) < 100
    assert not any(0x202E in map(ord, text) for text in texts)
    if view in ("standings", "payoff"):
        assert any("$\\frac{1}$" in text for text in texts)


EXPRESSIONS = (
    "datum.value",
    "{{datum.x}}",
    '{"expr": "1"}',
    "<b>x</b>&amp;",
    "]()\\[0].a",
    "javascript:alert(1)",
    "\u05d0\u05d1\u05d2",
)


def test_names_that_look_like_code_are_shown_as_they_are(tmp_path: Path) -> None:
    bots = [documents.standing(f"bot:{text}", "bot", 7.0) for text in EXPRESSIONS]
    cells = [documents.cell(bot["player"], "player/p000", 0.5) for bot in bots]
    lines = [{"policy": text, "agent_steps": 1, "policy/kl": 0.5} for text in EXPRESSIONS]
    rows = [
        documents.generation("player/p000", number, number, "start", mode=text)
        for number, text in enumerate(EXPRESSIONS)
    ]
    changed: dict[str, Any] = {
        "standings": documents.standings(*bots),
        "payoff": documents.payoff(*cells),
        "metrics": {"names": None, "metrics": lines},
        "hyperparameters": {"generations": rows, "search_space": {}},
    }
    for view in changed:
        texts = texts_of(write(view, tmp_path / "a.svg", **changed))
        for text in EXPRESSIONS:
            assert any(text in one for one in texts), (view, text)


def test_a_name_of_ten_thousand_characters_is_cut_and_two_of_them_are_two(tmp_path: Path) -> None:
    bots = [documents.standing("bot:" + "y" * 10_000 + end, "bot", 7.0) for end in "ab"]
    texts = texts_of(write("standings", tmp_path / "a.svg", standings=documents.standings(*bots)))
    cut = [text for text in texts if "yyy" in text]
    assert len(cut) == 2
    assert cut[1] == f"{cut[0]} (2)"


def test_a_pdf_has_no_date(tmp_path: Path) -> None:
    first, second = (write("payoff", tmp_path / name) for name in ("a.pdf", "b.pdf"))
    assert first == second
    assert b"CreationDate" not in first


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_another_process_elsewhere_writes_equal_bytes(tmp_path: Path, suffix: str) -> None:
    own = write("ratings", tmp_path / f"own{suffix}")
    other = tmp_path / f"other{suffix}"
    code = (
        "import sys; from pathlib import Path; "
        "from tests.tools.show.test_chart_files import write; write('ratings', Path(sys.argv[1]))"
    )
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "LANG": "C", "TZ": "Asia/Tokyo"}
    program = [sys.executable, "-c", code, str(other)]
    subprocess.run(program, check=True, cwd=tmp_path, env=environment, timeout=120)
    assert other.read_bytes() == own


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for file in (tmp_path / "none" / "a.png", tmp_path / "folder.png"):
        with pytest.raises(ConfigError, match="cannot be written: "):
            write("lineage", file)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    data = tmp_path / "rows.json"
    data.write_text('[{"name": "from a file"}]')

    def draw(rows: dict[str, Any]) -> str:
        encoding = {"text": {"field": "name"}}
        write_chart({"data": rows, "mark": "text", "encoding": encoding}, tmp_path / "a.svg")
        return (tmp_path / "a.svg").read_text()

    # The address is not even requested: no server listens there.
    for url in ("http://127.0.0.1:9/rows.json", str(data)):
        with pytest.raises(ValueError, match="url not allowed"):
            draw({"url": url})
    assert "from a file" not in draw({"url": data.as_uri()})
    assert "from a row" in draw({"values": [{"name": "from a row"}]})


def test_mistakes_are_told_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"events has no plot.*standings, ratings, payoff"):
        find_figure("events", Path("a.png"))
    with pytest.raises(ConfigError, match=r"one of \.png, \.svg, \.pdf, not \.jpeg"):
        find_figure("ratings", Path("a.jpeg"))
    with pytest.raises(ConfigError, match="not nothing"):
        find_figure("ratings", Path("png"))
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ConfigError, match="pip install vl-convert-python"):
        find_figure("ratings", Path("a.png"))


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
    assert ">p000<" in file.read_text()
    league(board_run, view="lineage", plot=tmp_path / "lineage.svg")
    assert "lineage.svg: plot of lineage" in capsys.readouterr().out


def test_the_pages_script_is_what_the_package_makes() -> None:
    """Made anew by ``python -m docs.generate.page_script > tools/web/static/vega.min.js``."""
    files = static_files()
    assert files["vega.min.js"].decode() == script()
    assert "vega.licenses.txt" in files
    assert sum(len(files[name]) for name in SCRIPTS) < 2_000_000
