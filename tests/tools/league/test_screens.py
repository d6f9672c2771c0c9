"""Views on screens of 80 and 120 columns: nothing is wider, and what matters is there."""

from __future__ import annotations

import copy
import io
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import pytest

from populations.views.views import VIEWS
from tests.tools.league.documents import (
    DOCUMENTS,
    HOSTILE,
    event,
    payoff,
    players,
    standings,
)
from tools.league import watch
from tools.league.documents import Opened
from tools.league.tables import OVERHEAD, Shown, rendered, room
from tools.terminal.screen import Screen

if TYPE_CHECKING:
    from rich.live import Live

    from tools.league.keys import Keys
    from tools.league.watch import Query


def draw(
    name: str,
    document: dict[str, Any],
    *,
    width: int = 80,
    height: int = 40,
    encoding: str = "utf-8",
    populations: Sequence[str] = ("player",),
    **options: Any,
) -> str:
    """Return what a terminal of so many columns shows."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    screen = Screen(
        stream, force_terminal=True, width=width, height=height, no_color=True, highlight=False
    )
    opened = Opened(document, tuple(populations))
    for part in rendered(Shown(name=name, **options), opened, screen):
        screen.print(part)
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    # Bold is all that is left without colour.
    return re.sub(r"\x1b\[[0-9]*m", "", buffer.getvalue().decode(encoding))


def line_of(text: str, player: str) -> list[str]:
    """Return the words of the first line that begins with a player."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [player])


def test_a_rating_just_below_0_has_no_minus() -> None:
    document = standings(2)
    document["populations"]["player"][0] |= {"rating": -0.3, "rating_low": -0.4, "rating_high": 9.0}
    assert line_of(draw("standings", document), "p000")[1:3] == ["0", "0..9"]


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


def test_each_view_has_a_fixed_document() -> None:
    # Those that are about a player or another run have tests of their own documents.
    assert set(VIEWS) - {"metrics"} <= set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_line_is_wider_and_no_character_controls(name: str, width: int, encoding: str) -> None:
    text = draw(name, DOCUMENTS[name], width=width, encoding=encoding)
    assert max(map(len, text.splitlines())) <= width
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.strip()
    if encoding == "ascii":
        assert text.isascii()


def test_standings_have_what_matters_in_80_columns() -> None:
    text = draw("standings", standings())
    head = next(line for line in text.splitlines() if "rating" in line)
    wanted = ["player", "rating", "95%", "ranks", "matches", "score", "gen", "steps", "parent"]
    # Matches and scores are the same in all lines, so they stand above.
    assert "in all rows: matches 1,234, score 0.500, steps 1.4M" in text
    assert head.split()[:6] == [w for w in wanted if w not in ("matches", "score", "steps")]
    assert line_of(text, "p002")[:6] == ["p002", "800", "750..850", "3..4", "2", "p001"]
    assert "p005@2.1M" in text
    assert "columns without room:" not in text or "rating" not in text.split("room:")[1]


def test_rows_that_no_screen_takes_are_counted() -> None:
    text = draw("standings", standings(64), height=20)
    shown = sum(1 for line in text.splitlines() if re.match(r"(p[0-9]|bot:)", line))
    assert shown == 10
    # A policy and its ghost with the same weights are one row.
    assert f"{len(players(64)) - 1 - shown} more rows hidden (--limit N shows N)" in text
    assert "hidden" not in draw("standings", standings(64), limit=1000)


def test_a_run_that_has_just_begun_says_that_it_has_no_ratings() -> None:
    text = draw("standings", standings(rated=False))
    assert "no ratings yet" in text
    assert "p000" in text


def test_payoff_is_a_list_with_the_worst_score_of_the_best_player_first() -> None:
    text = draw("payoff", payoff())
    lines = [line.split() for line in text.splitlines() if line.startswith("p0")]
    assert lines[0][:4] == ["p000", "900", "p001", "850"]
    assert "0.530" in lines[0]
    assert lines[1][2] == "p002"


def test_payoff_is_a_map_in_120_columns() -> None:
    text = draw("payoff", payoff(), width=120)
    first = next(line.split() for line in text.splitlines() if line.startswith("#1 "))
    # Against oneself there is nothing; then by rating, in percent.
    assert first[:6] == ["#1", "p000", "900", "-", "53%", "56%"]
    assert "hidden" not in text
    # With more living players than columns it is a list.
    assert "#1" not in draw("payoff", payoff(13), width=120)


def test_a_map_leaves_out_ghosts_and_counts_them() -> None:
    text = draw("payoff", payoff(8), width=120)
    # 8 policies and the bot leave 3 of 12 places.
    assert "5 ghosts hidden" in text
    assert "bot:random" in text


def test_ratings_are_curves_with_marks() -> None:
    text = draw("ratings", DOCUMENTS["ratings"])
    rises, falls = line_of(text, "p001"), line_of(text, "p000")
    assert rises[1][0] == "▁"
    assert rises[1][-1] == "█"
    assert "c" in rises[1]
    assert "m" in falls[1]
    assert falls[1][-1] == "▁"
    assert rises[2:] == ["0±40", "800±40", "3M", "800±40", "1", "1", "4"]
    # Best last rating first; a policy that is not rated has no line.
    assert text.index("p001") < text.index("p000")
    assert "p002" not in text
    assert "champion of player: p001, from 00:03:00 UTC until now" in text
    wide = line_of(draw("ratings", DOCUMENTS["ratings"], width=120), "p001")[1]
    assert len(wide) == 48
    assert wide[-1] == "█"


def test_lineage_is_a_tree_of_copies() -> None:
    lines = draw("lineage", DOCUMENTS["lineage"]).splitlines()
    assert lines[1] == "├── p000, gen 0, 0-1M, +250 Elo, now"
    assert lines[2] == "│   └── p001, gen 1-2, copied p000@900k at 01:30, 1M-3M, +350 Elo, now"
    assert lines[3] == "└── p001, gen 0, 0-1M, +250 Elo"


def test_a_life_gains_by_one_fit_until_its_newest_rated_weights() -> None:
    document = copy.deepcopy(DOCUMENTS["lineage"])
    for row in document["generations"]:
        if (row["policy"], row["generation"]) in (("player/p000", 0), ("player/p001", 2)):
            # As where nothing of it was rated, or no weights but those that it began with.
            row["elo_gain"] = None
    lines = draw("lineage", document).splitlines()
    assert lines[1] == "├── p000, gen 0, 0-1M, now"
    assert lines[2] == "│   └── p001, gen 1-2, copied p000@900k at 01:30, 1M-3M, +250 Elo, now"


def test_hyperparameters_name_what_is_equal_once_and_what_changed() -> None:
    text = draw("hyperparameters", DOCUMENTS["hyperparameters"])
    assert line_of(text, "p002") == ["p002", "0.003"]
    assert text.count("parameter l 0.5") == 1
    assert "01:30 p001 exploited p000 at 1.23M: learning_rate 0.003 → 0.002" in text
    assert "gamma" not in text


def test_events_are_sentences_and_assignments_only_counted() -> None:
    text = draw("events", DOCUMENTS["events"])
    assert "p001 copied p000@2.1M: better" in text
    assert "hidden kinds: 1 train_assigned, 1 ratings_fitted (--kind shows one)" in text
    assert "opponents" not in text
    shown = draw("events", DOCUMENTS["events"], all_kinds=True)
    assert "train_assigned" in shown
    assert "hidden kinds" not in shown


def test_the_newest_events_are_kept() -> None:
    document = {"events": [event(n, "kept", sentence=f"number {n}.") for n in range(100)]}
    text = draw("events", document, limit=3)
    assert re.findall(r"number ([0-9]+)\.", text) == ["97", "98", "99"]
    assert "97 earlier rows hidden" in text


def test_the_newest_match_and_the_kept_checkpoints_come_first() -> None:
    text = draw("matches", DOCUMENTS["matches"])
    assert text.index("42-2-18") < text.index("41-2-19")
    text = draw("checkpoints", DOCUMENTS["checkpoints"])
    assert re.findall("45837[0-9]+", text) == ["4583761", "4583759", "4583760"]


def test_metrics_are_numbers_as_they_are() -> None:
    line = {"policy": "player/p000", "agent_steps": 1000, "policy/kl": 0.125}
    words = line_of(draw("metrics", {"metrics": [line]}), "p000")
    assert words == ["p000", "1000", "policy/kl", "0.125"]


def test_a_status_is_in_words() -> None:
    text = draw("status", {**DOCUMENTS["status"], "exploits": 3})
    assert "12 min 30 s" in text
    assert re.search("^copies +3 *$", text, re.MULTILINE)
    assert "state training, assignment 7" in text
    assert "18.6M" in text
    assert "p000, rating 939, 95% 847..1032" in text
    assert "alert: kl_high: kl is 0.2. Lower the rate." in text
    assert "{" not in text


def test_wide_shows_everything() -> None:
    text = draw("calibration", DOCUMENTS["calibration"], width=1000, is_wide=True)
    assert "a" * 64 in text
    assert "very.long." * 20 in text
    assert "player/p001" in text
    assert "return" in draw("standings", standings(), width=1000, is_wide=True)


def test_several_populations_are_named() -> None:
    text = draw("standings", standings(), populations=("player", "other"))
    assert "player/p000" in text
    assert HOSTILE not in draw("events", DOCUMENTS["events"])


def test_a_champion_is_told_with_its_lead_its_line_and_its_worst_results() -> None:
    text = draw("champion", DOCUMENTS["champion"])
    assert "champion of player: p000, 939 Elo, 95% 847..1032, 4.86M agent steps" in text
    assert "leads since 00:03:00 UTC, after 27 changes" in text
    document = copy.deepcopy(DOCUMENTS["champion"])
    document["champions"][0]["since"] = None
    assert "leads, after 27 changes" in draw("champion", document)
    assert "next: p003, 72 Elo behind, 95% -10..+105" in text
    assert "p001 (start at 0) → p000 (copy at 7)" in text
    assert line_of(text, "p001@2.1M")[1] == "0.016"
    assert "in all rows: matches 62, 95% 0.000..1.000" in text
    assert "3 more opponents hidden" in text
    assert "nobody is surely better than untrained: player/p000 has 0 agent steps" in text
    assert "too little training so far" in text
    proven = copy.deepcopy(DOCUMENTS["champion"])
    proven["champions"][0]["unproven"] = None
    assert "untrained" not in draw("champion", proven)
    assert "no champion yet" in draw("champion", {"champions": []})


def test_learners_say_what_they_do_wait_for_and_suffered() -> None:
    text = " ".join(draw("learners", DOCUMENTS["learners"]).split())
    assert "vm-1: trains p003, 35,184 steps so far, since 00:03:00 UTC; waits for" in text
    assert "2 faults, the last: second" in text
    assert "went away at 00:04:00 UTC: lost" in text
    assert "61,000" in text
    assert "no learner has joined yet" in draw("learners", {"state": "running", "learners": []})


def test_a_life_is_told_in_sentences() -> None:
    text = draw("why", DOCUMENTS["why"])
    assert text.startswith("p003: policy, role main, active, generation 2, 4.86M agent steps\n")
    assert "00:00:00  1.02M    0  p003 copied p000@2.1M, number 0." in text
    assert text.index("number 0") < text.index("number 1")


def test_two_runs_stand_side_by_side() -> None:
    document = DOCUMENTS["diff"]
    text = draw("diff", document)
    assert line_of(text, "elapsed") == ["elapsed", "12", "min", "30", "s", "61", "min", "40", "s"]
    assert "agent steps  18.6M        902M" in text
    # Equal to three digits is not the same.
    assert line_of(text, "matches") == ["matches", "1M", "1M"]
    assert "the same in both: name connect_four\n" in text
    assert "versions: 1 different, 6 equal" in text
    assert line_of(text, "torch") == ["torch", "2.13.0", "-"]
    assert "configuration: 3 different, 158 equal" in text
    # A long key goes on below, and ends after a dot.
    lines = text.splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith("populations.player."))
    assert lines[place].split() == ["populations.player.", "0.0003", "0.001"]
    assert lines[place + 1].split() == ["hyperparameters.learning_rate"]
    assert line_of(text, "learners") == ["learners", "null", "2"]
    assert line_of(text, "exploited") == ["exploited", "10", "628"]
    assert "the same in both: policies 4\n" in text
    assert "reset" not in text
    assert line_of(text, "gamma") == ["gamma", "0.99", "0.95"]
    champion = line_of(text, "champion")
    assert champion == ["champion", "p000", "939", "889..989", "p009", "812", "762..862"]
    assert line_of(text, "2") == ["2", "p002", "948", "898..998", "-", "-", "-"]
    assert "2 more places hidden (--wide shows all)" in text
    assert line_of(text, "bot:random")[:3] == ["bot:random", "0.980", "0.880..1.080"]
    assert "alert of" in text


def test_values_of_two_runs_that_begin_alike_show_where_they_differ() -> None:
    text = "".join(draw("diff", DOCUMENTS["diff"], width=400).split())
    assert 'a1"]' in text
    assert 'a2"]' in text


def test_the_command_that_compares_two_runs_can_be_copied() -> None:
    document = DOCUMENTS["diff"]
    command = document["evaluate"]["command"]
    assert f"    {command}\n" in draw("diff", document, width=120)
    # In several lines a shell reads the same.
    tail = draw("diff", document).partition("which is better:\n")[2]
    assert shlex.split(tail.replace("\\\n", " ")) == shlex.split(command)
    refused = {**document, "evaluate": {"command": None, "reason": "both are the same run"}}
    assert "No matches between them: both are the same run." in draw("diff", refused)


def test_a_large_tree_shows_the_lines_that_live() -> None:
    document = DOCUMENTS["lineage"]
    # Policies of which each copied p000 and then was replaced.
    dead = [
        {
            **document["generations"][2],
            "entrant": f"player/p1{n:02d}#1",
            "policy": f"player/p1{n:02d}",
        }
        for n in range(40)
    ]
    many = {**document, "generations": [*document["generations"], *dead]}
    text = draw("lineage", many)
    # Also p001's first life, which nobody has copied, is over.
    assert "41 lives without living descendants hidden (--wide shows all)" in text
    assert "p001, gen 1-2, copied p000@900k" in text
    assert "p100" in draw("lineage", many, is_wide=True, width=200)
