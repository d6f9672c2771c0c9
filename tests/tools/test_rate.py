from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from arena.errors import ConfigError
from populations.ratings.table import MatchTable
from tools.rate import Model, Score, rate, read_scores

app = typer.Typer()
app.command()(rate)


def written(path: Path, text: str) -> Path:
    file = path / "matches.csv"
    file.write_text(text, encoding="utf8")
    return file


def test_the_document_has_what_the_interface_says(tmp_path: Path) -> None:
    lines = ["a,b,1"] * 30 + ["b,a,0"] * 30 + ["b,c,1"] * 20 + ["c,b,0.5"] * 20
    file = written(tmp_path, "home,away,score\n" + "\n".join(lines))
    outcome = CliRunner().invoke(app, [str(file), "--json"], catch_exceptions=False)
    assert outcome.exit_code == 0
    document = json.loads(outcome.stdout)
    assert document["schema"] == 1
    assert document["model"] == "bradley_terry"
    assert 0.0 <= document["cyclicity"] <= 1.0
    ratings = document["ratings"]
    assert [line["player"] for line in ratings] == ["a", "b", "c"]
    assert [line["matches"] for line in ratings] == [60, 100, 40]
    assert [line["rank_low"] for line in ratings] == [1, 2, 3]
    assert [line["rank_high"] for line in ratings] == [1, 2, 3]
    assert sum(line["rating"] for line in ratings) == pytest.approx(0.0, abs=1e-6)
    for line in ratings:
        assert line["rating_low"] < line["rating"] < line["rating_high"]


def test_the_anchor_is_at_zero(tmp_path: Path) -> None:
    file = written(tmp_path, "home,away,score\na,b,1\nb,a,1\na,b,0.5\n")
    for model in ("bradley_terry", "elo", "weng_lin", "nash_averaging"):
        arguments = [str(file), "--json", "--model", model, "--anchor", "b", "--bootstrap", "5"]
        outcome = CliRunner().invoke(app, arguments, catch_exceptions=False)
        ratings = {line["player"]: line for line in json.loads(outcome.stdout)["ratings"]}
        assert ratings["b"]["rating"] == 0.0
        assert (ratings["b"]["rating_low"], ratings["b"]["rating_high"]) == (0.0, 0.0)


KEYS = ["player", "rating", "rating_low", "rating_high", "rank_low", "rank_high", "matches"]


@pytest.mark.parametrize("model", get_args(Model))
def test_every_model_writes_the_same_document(model: str, tmp_path: Path) -> None:
    lines = ["a,b,1", "b,c,1", "a,c,0.5", "c,a,0.25"] * 5
    file = written(tmp_path, "home,away,score\n" + "\n".join(lines))
    arguments = [str(file), "--json", "--model", model, "--bootstrap", "10", "--seed", "3"]
    outcome = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0
    assert outcome.stderr == ""
    document = json.loads(outcome.stdout)
    assert list(document)[:4] == ["schema", "model", "ratings", "cyclicity"]
    assert document["model"] == model
    ratings = document["ratings"]
    assert sorted(line["player"] for line in ratings) == ["a", "b", "c"]
    assert [line["rating"] for line in ratings] == sorted(
        (line["rating"] for line in ratings), reverse=True
    )
    for line in ratings:
        assert list(line) == KEYS
        assert line["rating_low"] <= line["rating"] <= line["rating_high"]
        assert 1 <= line["rank_low"] <= line["rank_high"] <= 3
    assert {line["player"]: line["matches"] for line in ratings} == {"a": 15, "b": 10, "c": 15}
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert again.stdout == outcome.stdout
    if model == "nash_averaging":
        assert sum(document["mixture"].values()) == pytest.approx(1.0)


def test_without_resamples_there_are_no_intervals(tmp_path: Path) -> None:
    file = written(tmp_path, "home,away,score\na,b,1\n")
    arguments = [str(file), "--json", "--model", "elo", "--bootstrap", "0"]
    outcome = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert {line["rating_low"] for line in json.loads(outcome.stdout)["ratings"]} == {None}
    text = CliRunner().invoke(app, [*arguments[:1], *arguments[2:]], catch_exceptions=False)
    assert text.exit_code == 0


def test_a_cyclic_game_is_warned_about_and_has_a_mixture(tmp_path: Path) -> None:
    lines = ["rock,scissors,1", "scissors,paper,1", "paper,rock,1"] * 10
    file = written(tmp_path, "home,away,score\n" + "\n".join(lines))
    outcome = CliRunner().invoke(app, [str(file)], catch_exceptions=False)
    text = " ".join(outcome.stdout.split())
    # Each pair gives 10^2 / 4 / 10 points, less 7.815 / 4 for what chance does in 95 of 100
    # leagues.
    assert "Warning: cyclicity is 0.74, above 0.25" in text
    assert "Nash mixture: paper 0.333, rock 0.333, scissors 0.333" in text
    file = written(tmp_path, "home,away,score\n" + "a,b,1\nb,c,1\na,c,1\n" * 10)
    outcome = CliRunner().invoke(app, [str(file)], catch_exceptions=False)
    assert "Warning" not in outcome.stdout
    assert "mixture" not in outcome.stdout


def test_what_ratings_leave_out_is_said_on_the_other_stream(tmp_path: Path) -> None:
    file = written(tmp_path, "home,away,score\na,b,1\nb,c,1\n")
    arguments = [str(file), "--json", "--model", "alpha_rank", "--anchor", "b", "--bootstrap", "2"]
    outcome = CliRunner().invoke(app, arguments, catch_exceptions=False)
    said = " ".join(outcome.stderr.split())
    assert "33% of the pairs never met: alpha_rank takes them for even" in said
    assert "alpha_rank's ratings are shares: --anchor changes nothing" in said
    assert sum(line["rating"] for line in json.loads(outcome.stdout)["ratings"]) == pytest.approx(1)


SKILLS = {f"p{number:02d}": 60.0 * number - 270.0 for number in range(10)}
NAMES = tuple(SKILLS)


def planted(kind: str, *, home: float = 0.0) -> list[Score]:
    """Matches of players with these skills, a tenth of them drawn, listed as is usual somewhere."""
    rng = np.random.default_rng(7)

    def score(first: str, second: str) -> float:
        # 1 / (1 + 10^(-d / 400)), less half of the draws
        expected = 1.0 / (1.0 + 10.0 ** ((SKILLS[second] - SKILLS[first] - home) / 400.0))
        drawn = rng.random()
        return 1.0 if drawn < expected - 0.05 else 0.5 if drawn < expected + 0.05 else 0.0

    if kind == "challenger first":
        pairs = [(NAMES[k + 1], NAMES[k]) for k in range(9) for _ in range(400)]
    else:
        pairs = [tuple(rng.permutation(NAMES)[:2]) for _ in range(3000)]
    rows = [(str(first), str(second), score(first, second)) for first, second in pairs]
    if kind == "winner first":
        rows = [row if row[2] >= 0.5 else (row[1], row[0], 1.0) for row in rows]
    return rows


def rated(
    tmp_path: Path, rows: list[Score], *options: str, form: str = "{},{},{}\n", start: str = ""
) -> tuple[float, float, str]:
    """Return the error of the ratings, the Elo of being home, and what is said beside."""
    lines = "".join(form.format(*row) for row in rows)
    file = written(tmp_path, f"{start}home,away,score\n{lines}")
    outcome = CliRunner().invoke(app, [str(file), "--json", *options], catch_exceptions=False)
    document = json.loads(outcome.stdout)
    errors = [line["rating"] - SKILLS[line["player"]] for line in document["ratings"]]
    advantage = document["advantage"]
    said = " ".join(outcome.stderr.split())
    return float(np.std(errors)), 0.0 if advantage is None else advantage, said


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("winner first", "home won {0:,} of the {0:,} matches that somebody won, which"),
        ("challenger first", "home is nearly always the next one in one order of the players"),
    ],
)
def test_columns_that_are_no_seats_are_noticed_and_fitted_without(
    tmp_path: Path, kind: str, said: str
) -> None:
    rows = planted(kind)
    said = said.format(sum(score != 0.5 for _, _, score in rows))
    error, advantage, note = rated(tmp_path, rows)
    assert error > 50.0
    assert abs(advantage) > 20.0
    assert note.startswith(said)
    assert f"an advantage of being home, of {advantage:+.0f} Elo" in note
    assert "say --no-seats" in note
    error, advantage, note = rated(tmp_path, rows, "--no-seats")
    assert error < 30.0
    assert (advantage, note) == (0.0, "")
    # The order of the columns makes no difference.
    turned = [(away, home, 1.0 - score) for home, away, score in rows]
    assert rated(tmp_path, turned)[2].startswith(said.replace("home won", "home lost"))
    assert rated(tmp_path, turned, "--no-seats")[0] == pytest.approx(error, abs=0.1)


@pytest.mark.parametrize("home", [0.0, 150.0])
def test_true_seats_are_fitted_without_a_word(tmp_path: Path, home: float) -> None:
    error, advantage, note = rated(tmp_path, planted("seats", home=home))
    assert error < 30.0
    assert advantage == pytest.approx(home, abs=25.0)
    assert note == ""


def test_blanks_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    rows = planted("seats")[:300]
    plain = rated(tmp_path, rows)
    spaced = rated(tmp_path, rows, form=" {} ,\t{}, {} \n\n , ,\n", start="\ufeff")
    assert spaced == plain
    # A repeated line counts as two matches: the same ratings, with smaller errors.
    twice = MatchTable.from_matches([*rows, *rows])
    assert int(twice.num_matches().sum()) == 4 * len(rows)


def test_what_knows_no_seats_says_so(tmp_path: Path) -> None:
    file = written(tmp_path, "home,away,score\na,b,1\nb,a,1\n")
    arguments = [str(file), "--model", "elo", "--no-seats"]
    outcome = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "elo knows no seats: --no-seats changes nothing" in outcome.stderr
    text = CliRunner().invoke(app, [str(file)], catch_exceptions=False).stdout
    assert "being home is worth" in " ".join(text.split())


def test_options_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "home,away,score\na,b,1\n")
    for option in (["--bootstrap", "-1"], ["--k-factor", "nan"], ["--model", "trueskill"]):
        assert CliRunner().invoke(app, [str(file), *option]).exit_code == 2
    with pytest.raises(ConfigError, match="--bootstrap must be 0 or at least 2, got 1"):
        CliRunner().invoke(app, [str(file), "--bootstrap", "1"], catch_exceptions=False)
    with pytest.raises(ConfigError, match="--k-factor must be finite, got inf"):
        CliRunner().invoke(app, [str(file), "--k-factor", "inf"], catch_exceptions=False)


def test_a_person_reads_a_table(tmp_path: Path) -> None:
    file = written(tmp_path, "home,away,score\na,b,1\n")
    for model in ("bradley_terry", "elo", "weng_lin", "alpha_rank"):
        outcome = CliRunner().invoke(app, [str(file), "--model", model], catch_exceptions=False)
        assert outcome.exit_code == 0
        assert "cyclicity" in outcome.stdout
        assert "a" in outcome.stdout.split()


def test_other_columns_spaces_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    file = written(tmp_path, '\ufeffdate, score ,away,home\n2024, 0.5 ,"b, jr", a\n\n')
    assert list(read_scores(file)) == [("a", "b, jr", 0.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 must name the columns home, away and score; 'home' is missing, got nothing"),
        ("home,away\na,b\n", "'score' is missing, got home, away"),
        ("home,away,score\n", "must have at least one match"),
        ("home,away,score\n,,\n \n", "must have at least one match"),
        (
            "home,away,score,home\na,b,1,c\n",
            "line 1 must name the columns home, away and score; "
            "'home' is there more than once, got home, away, score, home",
        ),
        (
            "home,away,score\na,b,1\na,b,1.5\n",
            "line 3: score must be a number in [0, 1], got '1.5'",
        ),
        ("home,away,score\na,b,nan\n", "line 2: score must be a number in [0, 1], got 'nan'"),
        ("home,away,score\na,b,won\n", "line 2: score must be a number in [0, 1], got 'won'"),
        ("home,away,score\na,b\n", "line 2: score must be a number in [0, 1], got ''"),
        ("home,away,score\n,b,1\n", "line 2: home must not be empty"),
        ("home,away,score\na,a,1\n", "line 2: home and away must differ, got 'a' twice"),
        ('home,away,score\na,"b,1\n', "is no CSV file in UTF-8"),
    ],
)
def test_errors_name_the_line_the_rule_and_the_value(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        list(read_scores(written(tmp_path, text)))
    assert message in str(caught.value)
    assert "matches.csv" in str(caught.value)


def test_what_is_no_text_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "matches.csv"
    file.write_bytes(b"\xff\xfe\x00home")
    with pytest.raises(ConfigError, match="is no CSV file in UTF-8"):
        list(read_scores(file))
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file or directory"):
        list(read_scores(tmp_path / "nothing.csv"))


def test_an_anchor_that_never_played_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "home,away,score\nanna,bobby,1\n")
    with pytest.raises(ConfigError, match="must be one of the players; did you mean 'bobby'"):
        CliRunner().invoke(app, [str(file), "--anchor", "boby"], catch_exceptions=False)
