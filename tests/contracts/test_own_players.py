"""Bots, encoders, algorithms, batched games and sinks of the project keep users' contracts."""

from __future__ import annotations

import pytest

from arena.config import NetworkConfig
from arena.envs.registry import TWINS
from arena.testing import (
    ContractBroken,
    check_algorithm,
    check_batched_game,
    check_bot,
    check_encoder,
    check_exploit,
    check_explore,
    check_matchmaker,
    check_sink,
    check_thinning,
)
from populations.matchmaking.kinds import KINDS
from populations.pbt.kinds import EXPLOITS, EXPLORES
from populations.thinning.make import THINNINGS
from tests.assets.batched_games import Hunt

BOARD = "classic/tictactoe-v3"


def test_the_bot_of_connect_four() -> None:
    check_bot("arena.bots.connect_four:Tactical", environment="classic/connect_four-v3")


@pytest.mark.parametrize(
    ("hyperparameters", "settings", "network"),
    [
        ({}, {}, {}),
        pytest.param(
            {"ema_decay": 0.9, "magnet_coef": 0.1, "kl_coef": 0.1},
            {"advantages": "vtrace"},
            {"separate_value": True, "normalize_observations": True},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {},
            {"normalize_returns": False},
            {"core": "gru", "core_size": 8},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"target_kl": 0.5}, {}, {"core": "lstm", "core_size": 8}, marks=pytest.mark.slow
        ),
    ],
    ids=["ppo", "averages", "gru", "lstm"],
)
def test_ppo(
    hyperparameters: dict[str, float], settings: dict[str, object], network: dict[str, object]
) -> None:
    check_algorithm(
        "ppo",
        environment=BOARD,
        hyperparameters=hyperparameters,
        settings=settings,
        network=NetworkConfig.model_validate({"hidden_sizes": (8,), **network}),
    )


@pytest.mark.slow
def test_ppo_without_masks_and_with_numbers() -> None:
    check_algorithm("ppo", environment="classic/rps-v2")
    check_algorithm("ppo", environment="mpe2/simple_spread_v3", kwargs={"continuous_actions": True})


@pytest.mark.parametrize("game", TWINS.values())
def test_every_batched_game(game: str) -> None:
    # `tests/arena/envs/batched/test_games.py` compares these games with their originals.
    check_batched_game(game, num_calls=50)


def test_a_batched_game_of_agents_that_decide_at_once() -> None:
    check_batched_game(Hunt, num_calls=30)


@pytest.mark.parametrize("sink", ["jsonl", "tensorboard", "tests.assets.sinks:Kept"])
def test_every_sink(sink: str) -> None:
    check_sink(sink)


def test_a_tracker_is_no_sink() -> None:
    with pytest.raises(ContractBroken, match="it must be a sink; a tracker has none"):
        check_sink("wandb")


@pytest.mark.xdist_group("exports")
def test_an_encoder() -> None:
    check_encoder("tests.contracts.broken_players:OneLayer", environment="classic/rps-v2")


VARIANTS: dict[str, dict[str, object]] = {
    **{f"pfsp-{weighting}": {"weighting": weighting} for weighting in ("linear", "variance")},
    "pfsp-thompson": {"posterior": "thompson"},
    "pfsp-living": {"living_ratio": 0.25},
    "psro-rectified": {"meta_solver": "rectified", "psro_players": 4},
    "alphastar-paper": {"constants": "paper"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_matchmaking(kind: str) -> None:
    check_matchmaker(kind)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_matchmaking(variant: str) -> None:
    check_matchmaker(variant.partition("-")[0], options=VARIANTS[variant])


@pytest.mark.parametrize("kind", EXPLOITS)
def test_every_kind_of_selection(kind: str) -> None:
    # With confidence 0 a donor is drawn however uncertain the ratings are.
    for confidence in (0.9, 0.0):
        check_exploit(kind, section={"confidence": confidence})


@pytest.mark.parametrize(
    "kind",
    # Optuna's Gaussian process is fitted twice by torch, which takes long.
    [pytest.param(kind, marks=[pytest.mark.slow] if kind == "gp" else []) for kind in EXPLORES],
)
def test_every_kind_of_exploring(kind: str) -> None:
    check_explore(kind, section={"reset_probability": 0.1})


@pytest.mark.parametrize("kind", THINNINGS)
def test_every_kind_of_thinning(kind: str) -> None:
    check_thinning(kind)
