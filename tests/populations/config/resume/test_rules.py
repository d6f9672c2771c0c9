"""Keys that a resume may change, and reasons for those that it may not."""

from __future__ import annotations

import pytest

from populations.config.resume import is_under, why_not


@pytest.mark.parametrize(
    ("key", "pattern", "expected"),
    [
        ("pbt", "pbt", True),
        ("pbt.fraction", "pbt", True),
        ("pbtx.fraction", "pbt", False),
        ("populations.prey.pbt.fraction", "populations.*.pbt", True),
        ("populations.prey", "populations.*.pbt", False),
        ("populations.prey.network", "populations.*.pbt", False),
        ("matchmaking.bots.bot:a.b:C(depth=3)", "matchmaking.bots", True),
    ],
)
def test_a_pattern_names_a_key_and_all_below(key: str, pattern: str, expected: bool) -> None:
    assert is_under(key, pattern) is expected


def test_each_refused_key_has_a_reason() -> None:
    assert why_not("stop.duration_s", 1, 2) is None
    assert why_not("hooks.on_ghost", 1, 2) is None
    assert why_not("journal.keep_detail_hours", 24.0, None) is None
    assert why_not("metrics.keep_mb", None, 100) is None
    assert why_not("populations.prey.hyperparameters.reward_weights.win", 1, 2) is None
    assert why_not("populations.prey.size", 1, 2) == (
        "the members of a population were made with the run"
    )
    assert why_not("populations.prey.network.core", 1, 2) == "weights fit one architecture"
    reason = "all results and weights are about the environment that they were made in"
    assert why_not("environment.curriculum", 1, 2) == reason
    # Below what may change.
    assert why_not("evaluation.kwargs.size", 1, 2) == reason
    assert why_not("evaluation.share", 0.1, 0.2) is None
    assert why_not("evaluation.greedy", False, True) == (
        "results of sampled and of greedy play are never in one fit"
    )
    for section in ("pbt", "populations.prey.pbt"):
        reason = "the members of a population were made with the run"
        assert why_not(f"{section}.initial", "same", "sampled") == reason
    assert why_not("a.later.section", 1, 2) == "it was fixed when the run was made"


def test_players_whose_weights_were_copied_stay() -> None:
    for name in ("pbt.immigration.from", "populations.prey.pbt.immigration.from"):
        reason = why_not(name, 1, 2)
        assert reason == "the weights of its players were copied when the run was made"
    for name in ("matchmaking.bots.bot:random", "evaluation.bots"):
        assert why_not(name, 1, 2) is None
        # Their places are counted among all.
        reason = why_not(name, 1, 2, moves_players=True)
        assert reason is not None
        assert "bots may only follow" in reason
    assert why_not("pbt.immigration.probability", 1, 2) is None


@pytest.mark.parametrize(
    ("before", "after", "is_allowed"),
    [
        (["a", "b"], ["a", "b", "c"], True),
        (["a", "b"], None, True),
        (["a", "b"], ["b", "a"], False),
        (["a", "b"], ["a"], False),
        ([16, 32], [32, 64], True),
    ],
)
def test_names_in_a_search_space_keep_their_places(
    before: object, after: object, is_allowed: bool
) -> None:
    key = "populations.player.search_space.advantages.choices"
    assert (why_not(key, before, after) is None) == is_allowed
