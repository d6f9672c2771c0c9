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
    assert why_not("stop.duration_s") is None
    assert why_not("hooks.on_ghost") is None
    assert why_not("journal.keep_detail_hours") is None
    assert why_not("metrics.keep_mb") is None
    assert why_not("populations.prey.hyperparameters.reward_weights.win") is None
    assert why_not("populations.prey.size") == (
        "the members of a population were made with the run"
    )
    assert why_not("populations.prey.network.core") == "weights fit one architecture"
    reason = "all results and weights are about the environment that they were made in"
    assert why_not("environment.curriculum") == reason
    # Below what may change.
    assert why_not("evaluation.kwargs.size") == reason
    assert why_not("evaluation.share") is None
    assert why_not("evaluation.greedy") == (
        "results of sampled and of greedy play are never in one fit"
    )
    for section in ("pbt", "populations.prey.pbt"):
        reason = "the members of a population were made with the run"
        assert why_not(f"{section}.initial") == reason
    assert why_not("a.later.section") == "it was fixed when the run was made"


def test_players_whose_weights_were_copied_stay() -> None:
    for name in ("pbt.immigration.from", "populations.prey.pbt.immigration.from"):
        reason = why_not(name)
        assert reason == "the weights of its players were copied when the run was made"
    for name in ("matchmaking.bots.bot:random", "evaluation.bots"):
        assert why_not(name) is None
        # Their places are counted among all.
        reason = why_not(name, moves_players=True)
        assert reason is not None
        assert "bots may only follow" in reason
    assert why_not("pbt.immigration.probability") is None
