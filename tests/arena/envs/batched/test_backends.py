from __future__ import annotations

from typing import Literal

import pytest
import torch

from arena.config import InfoOutcome, Outcome
from arena.environment_spec import EnvironmentRequest
from arena.envs.base import BatchedEnv
from arena.envs.batched.batch import GameBatch
from arena.envs.batched.cards import unroll
from arena.envs.inspect import inspect_environment
from arena.envs.registry import TWINS
from arena.envs.stepped import PettingZooBatch
from arena.errors import ConfigError
from arena.processes.settings import SETTINGS
from tests.arena.samples import ASSETS, facts_of, make_env

TICTACTOE = "classic/tictactoe-v3"

Backend = Literal["auto", "pettingzoo", "batched"]


def made(
    environment: str,
    backend: Backend,
    *,
    outcome: Outcome = "return",
    kwargs: dict[str, object] | None = None,
) -> BatchedEnv:
    spec = facts_of(environment, kwargs)
    config = {"backend": backend, "outcome": outcome}
    return make_env(spec, num_envs=2, populations={"all": spec.agents}, config=config)


def test_a_twin_is_used_unless_it_is_told_not_to() -> None:
    assert isinstance(made(TICTACTOE, "auto"), GameBatch)
    assert isinstance(made(TICTACTOE, "batched"), GameBatch)
    assert isinstance(made(TICTACTOE, "pettingzoo"), PettingZooBatch)


@pytest.mark.parametrize("environment", TWINS)
def test_a_twin_is_float32_whatever_users_code_has_set(environment: str) -> None:
    unroll.cache_clear()
    before = torch.get_default_dtype()
    try:
        # User code of this process has changed the default dtype for itself.
        SETTINGS.run(torch.set_default_dtype, torch.float64)
        env = made(environment, "batched")
        SETTINGS.run(torch.set_default_dtype, before)
    finally:
        torch.set_default_dtype(before)
    turn = env.reset([1, 2])
    for _ in range(20):
        (group,) = turn.groups.values()
        assert {group.observation.dtype, turn.reward.dtype, turn.score.dtype} == {torch.float32}
        mask = group.action_mask
        legal = torch.zeros_like(group.agent_index) if mask is None else mask.int().argmax(dim=2)
        turn = env.step({"all": legal})


def test_auto_steps_one_by_one_where_the_twin_cannot() -> None:
    # Only the original environment has infos and options.
    outcome = InfoOutcome(info="winner")
    assert isinstance(made(TICTACTOE, "auto", outcome=outcome), PettingZooBatch)
    assert isinstance(made(TICTACTOE, "auto", kwargs={"screen_height": 500}), PettingZooBatch)
    with pytest.raises(ConfigError, match="a batched game has no infos"):
        made(TICTACTOE, "batched", outcome=outcome)


@pytest.mark.parametrize(
    ("environment", "backend", "message"),
    [
        ("mpe2/simple_spread_v3", "batched", "there is no batched game of mpe2/simple_spread_v3"),
        ("environments:MaskedTurns", "batched", "there is no batched game of environments:Masked"),
        ("batched_games:Hunt", "pettingzoo", "is a batched game, not a PettingZoo environment"),
    ],
)
@pytest.mark.slow
def test_a_backend_that_is_not_there_is_found_before_a_run_starts(
    environment: str, backend: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        inspect_environment(
            EnvironmentRequest(environment, launch_directory=ASSETS, backend=backend)
        )


@pytest.mark.slow
def test_a_users_batched_game_is_an_environment() -> None:
    spec = inspect_environment(EnvironmentRequest("batched_games:Hunt", launch_directory=ASSETS))
    assert spec.api == "parallel"
    assert spec.agents == ("hunter_0", "hare_0", "hunter_1")
    assert spec.agent_specs["hare_0"].mask == "observation"
    assert isinstance(made("batched_games:TakesTurns", "auto"), GameBatch)
