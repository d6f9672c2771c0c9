"""Views on screens: nothing is wider, and what no stored conversation shows is there.

Texts of all views of leagues that were played are goldens (`tests.goldens.conversations`).
"""

from __future__ import annotations

import io
import json
import re
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import pytest

from populations.views.views import VIEWS
from tests.goldens.conversations.golden import stored
from tests.populations.views import documents
from tests.populations.views.test_diff import differences, first_run, second_run
from tools.league import watch
from tools.league.documents import Opened
from tools.league.tables import OVERHEAD, Shown, rendered, room
from tools.terminal.screen import Screen

if TYPE_CHECKING:
    from rich.live import Live

    from tools.league.keys import Keys
    from tools.league.watch import Query

HOSTILE = "\x1b[31m[bold]=1+1\u202egnp"
"""Text that colours, is markup, begins a formula and reverses."""


def draw(
    name: str, document: Any, *, width: int = 80, encoding: str = "utf-8", **options: Any
) -> str:
    """Return what a terminal of so many columns and of 40 lines shows."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    screen = Screen(
        stream, force_terminal=True, width=width, height=40, no_color=True, highlight=False
    )
    for part in rendered(Shown(name=name, **options), Opened(document, ("player",)), screen):
        screen.print(part)
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    # Without colour only bold is left.
    return re.sub(r"\x1b\[[0-9]*m", "", buffer.getvalue().decode(encoding))


def line_of(text: str, player: str) -> list[str]:
    """Return the words of the first line that begins with a player."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [player])


@cache
def seen(view: str) -> Any:
    """Return the document of a view of a league that was played, about a policy where need be."""
    found = json.loads(stored("cooperation" if view == "cross-play" else "competition", "end.json"))
    return next(document for name, document in found.items() if name.split()[0] == view)


@pytest.fixture(scope="module")
def diff(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("runs")
    return differences(first_run(root / "one"), second_run(root / "two"))


def by_strangers(value: Any) -> Any:
    """Return a document in which each text ends as a stranger would write it."""
    if isinstance(value, dict):
        return {key: by_strangers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [*map(by_strangers, value)]
    return value + HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize("name", VIEWS)
def test_no_line_is_wider_and_no_character_controls(name: str, diff: Any) -> None:
    document = diff if name == "diff" else seen(name)
    for shown in (document, by_strangers(document)):
        for width in (80, 120):
            for encoding in ("utf-8", "ascii"):
                text = draw(name, shown, width=width, encoding=encoding)
                assert max(map(len, text.splitlines())) <= width
                assert all(c.isprintable() or c == "\n" for c in text)
                assert text.strip()
                assert encoding == "utf-8" or text.isascii()


def test_a_watched_screen_of_24_lines_shows_nine_players_and_fewer_by_a_key() -> None:
    screen = Screen(io.StringIO(), force_terminal=True, width=80, height=24)
    session = watch._Watch(
        cast("Query", None),
        Shown(name="standings", overhead=OVERHEAD + watch.HEAD),
        screen,
        cast("Live", None),
        cast("Keys", None),
    )
    shown = [room(session._shown, screen)]
    for key in ("-", "+", "+"):
        assert session._turn(key)
        assert session._shown.limit is not None
        shown.append(session._shown.limit)
    assert shown == [9, 5, 10, 15]
    assert [session._turn(key) for key in ("w", "x")] == [True, False]
    assert session._shown.is_wide


def test_rows_that_no_screen_takes_are_counted() -> None:
    lines = [documents.standing(f"player/p{n:03d}", "policy", -float(n)) for n in range(64)]
    document = {"populations": {"player": lines}}
    text = draw("standings", document)
    # 40 lines less 7 of the frame and 3 for warnings.
    assert len(re.findall(r"^p\d", text, re.MULTILINE)) == 30
    assert "34 more rows hidden (--limit N shows N)" in text
    assert "hidden" not in draw("standings", document, limit=64)
    number = len(seen("events")["events"])
    events = draw("events", seen("events"), limit=3, all_kinds=True)
    assert f"{number - 3} earlier rows hidden" in events


@pytest.mark.parametrize(
    ("view", "document", "said"),
    [
        ("champion", {"champions": []}, "no champion yet"),
        ("learners", {"learners": [], "state": "running"}, "no learner has joined yet"),
        (
            "standings",
            {"populations": {"player": [documents.standing("player/p000", "policy", None)]}},
            "no ratings yet: they begin with the first fit",
        ),
    ],
)
def test_what_is_not_there_yet_is_said(view: str, document: Any, said: str) -> None:
    assert said in draw(view, document)


def test_wide_shows_everything_and_chosen_kinds_of_events_are_not_hidden() -> None:
    assert "return" in draw("standings", seen("standings"), width=1000, is_wide=True)
    checkpoints = draw("checkpoints", seen("checkpoints"), width=1000, is_wide=True, limit=1)
    assert "columns without room" not in checkpoints
    assert "hidden kinds" not in draw("events", seen("events"), all_kinds=True)


def test_a_champion_that_is_not_proven_says_why() -> None:
    (champion,) = seen("champion")["champions"]
    unproven = {"what": "nobody is surely better", "reasons": ["too little", "such rewards"]}
    text = draw("champion", {"champions": [{**champion, "unproven": unproven}]})
    assert "nobody is surely better; the most likely reasons:\n  too little,\n  or such" in text


def test_a_large_tree_shows_the_lines_that_live() -> None:
    document = seen("lineage")
    (first, *_) = document["generations"]
    # Each of these policies copied the first one and was then replaced.
    dead = [
        {
            **first,
            "entrant": f"player/p9{n:02d}#0",
            "policy": f"player/p9{n:02d}",
            "parent": first["entrant"],
        }
        for n in range(40)
    ]
    many = {**document, "generations": [*document["generations"], *dead]}
    text = draw("lineage", many)
    assert re.search(r"[4-9]\d lives without living descendants hidden \(--wide shows all\)", text)
    assert "p9" not in text
    assert "p939" in draw("lineage", many, is_wide=True, width=200)


def test_two_runs_stand_side_by_side(diff: Any) -> None:
    text = draw("diff", diff)
    assert line_of(text, "elapsed") == ["elapsed", "30", "s", "60", "s"]
    assert line_of(text, "matches") == ["matches", "110", "20"]
    assert "the same in both: name test" in text
    assert re.search("versions: 0 different, [0-9]+ equal", text)
    assert re.search("configuration: 2 different, [0-9]+ equal", text)
    assert line_of(text, "pbt.min_rating_gap") == ["pbt.min_rating_gap", "30.0", "50.0"]
    assert line_of(text, "exploited") == ["exploited", "2", "0"]
    assert "immigrated" not in text
    assert line_of(text, "learning_rate") == ["learning_rate", "0.001", "0.003"]
    assert line_of(text, "champion") == [
        *("champion", "p000", "280", "260..300", "3,000", "p000", "50", "30..70", "9,000")
    ]
    assert line_of(text, "2")[-4:] == ["-"] * 4
    assert line_of(text, "bot:random")[:2] == ["bot:random", "1.000"]
    assert "alert of one: kl_high: kl is 0.2" in text


def test_long_keys_and_values_of_two_runs_show_where_they_differ(diff: Any) -> None:
    changed = {
        "equal": 1,
        "different": [
            {"key": "populations.player.hyperparameters.learning_rate", "first": 3e-4, "second": 1},
            {"key": "bots", "first": ["b" * 200 + "1"], "second": ["b" * 200 + "2"]},
            {"key": "learners", "first": None, "second": 2},
        ],
    }
    text = draw("diff", {**diff, "configuration": changed})
    # A long key continues on the next line, after a dot.
    assert line_of(text, "populations.player.") == ["populations.player.", "0.0003", "1"]
    assert line_of(text, "hyperparameters.learning_rate")
    assert line_of(text, "learners") == ["learners", "null", "2"]
    wide = "".join(draw("diff", {**diff, "configuration": changed}, width=400).split())
    assert 'b1"]' in wide
    assert 'b2"]' in wide


def test_the_command_that_compares_two_runs_can_be_copied(diff: Any) -> None:
    command = f"arena evaluate runs/old runs/{'new' * 21}"
    document = {**diff, "evaluate": {"command": command, "reason": None}}
    assert f"    {command}\n" in draw("diff", document, width=120)
    # A shell reads the same from several lines.
    tail = draw("diff", document).partition("which is better:\n")[2]
    assert shlex.split(tail.replace("\\\n", " ")) == shlex.split(command)
    refused = {**diff, "evaluate": {"command": None, "reason": "both are the same run"}}
    assert "No matches between them: both are the same run." in draw("diff", refused)
