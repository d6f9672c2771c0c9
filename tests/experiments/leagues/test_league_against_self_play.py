"""What is done is not done again, and both ways have as many agent steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import experiments.leagues.league_against_self_play as experiment
from experiments.harness import columns
from experiments.leagues import exploiters
from experiments.leagues.league_against_self_play import Plan, comparable, fill_in, table
from populations.config.run_config import RunConfig, validate_config

PLAN = Plan(seconds=5.0, exploited=(), exploiter_steps=10, matches=2, overrides=("learners=1",))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Configurations that were trained; nothing is."""
    configs: list[RunConfig] = []

    def train(config: object, run: Path) -> None:
        run.mkdir()
        configs.append(validate_config(config))

    def measured(game: str, run: Path, plan: Plan, *, scratch: Path) -> dict[str, object]:
        del game, plan, scratch
        assert run.is_dir()
        seed = configs[-1].seed
        return {"agent_steps": 1000 + seed, "last": 0.1 * seed, "nash": 0.2}

    monkeypatch.setattr(experiment, "train", train)
    monkeypatch.setattr(experiment, "measured", measured)
    return configs


def test_plain_self_play_makes_as_many_steps_as_the_league(
    tmp_path: Path, trained: list[RunConfig]
) -> None:
    out = tmp_path / "out.jsonl"
    for way in ("league", "self_play"):
        fill_in(out, PLAN, game="kuhn", way=way, seed=3)
    league, plain = trained
    assert (league.matchmaking.kind, plain.matchmaking.kind) == ("pfsp", "latest")
    assert (league.stop.duration_s, league.stop.agent_steps_per_policy) == (5.0, None)
    assert (plain.stop.duration_s, plain.stop.agent_steps_per_policy) == (None, 1003)
    assert league.environment == plain.environment
    assert league.populations == plain.populations
    with pytest.raises(ValueError, match="no line of the league in kuhn with seed 4"):
        fill_in(out, PLAN, game="kuhn", way="self_play", seed=4)


def test_what_has_its_line_is_not_done_again(tmp_path: Path, trained: list[RunConfig]) -> None:
    out = tmp_path / "out.jsonl"
    for _ in range(2):
        for seed in (1, 2):
            for way in ("league", "self_play"):
                fill_in(out, PLAN, game="leduc", way=way, seed=seed)
    assert len(trained) == 4
    # A crash in the middle of a line loses only that line, whose run is repeated.
    text = out.read_text()
    out.write_text(text[: text.rindex('"nash"')])
    fill_in(out, PLAN, game="leduc", way="self_play", seed=2)
    assert len(trained) == 5
    assert len(comparable(out, PLAN)) == 4
    assert [json.loads(line)["seed"] for line in text.splitlines()] == [1, 1, 2, 2]
    # A line of another plan is not comparable.
    other = Plan(seconds=6.0, exploited=(), exploiter_steps=10, matches=2, overrides=())
    assert comparable(out, other) == []
    rows = columns(table(comparable(out, PLAN)))
    assert [row.split() for row in rows] == [
        ["game", "measure", "league", "(seeds)", "self_play", "(seeds)"],
        ["leduc", "agent_steps", *2 * ["1001.500", "+-", "0.707", "(2)"]],
        ["leduc", "last", "0.150", "+-", "0.071", "(2)", "0.150", "+-", "0.071", "(2)"],
        ["leduc", "nash", "0.200", "+-", "0.000", "(2)", "0.200", "+-", "0.000", "(2)"],
    ]


def test_a_score_counts_both_seats_and_draws_as_half_a_win(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [
        {"home": "a", "away": "b", "wins": 6, "draws": 1, "losses": 3},
        {"home": "b", "away": "a", "wins": 5, "draws": 3, "losses": 2},
    ]
    monkeypatch.setattr(exploiters, "arena", lambda *_: json.dumps({"pairs": pairs}))
    # The score is 6 + 2 wins and 4 draws of 20 matches.
    assert exploiters.meet(("a", "b"), matches=10) == pytest.approx(0.5)
    assert exploiters.meet(("b", "a"), matches=10) == pytest.approx(0.5)
    pairs[0] |= {"wins": 9, "losses": 0}
    assert exploiters.meet(("a", "b"), matches=10) == pytest.approx(0.65)
