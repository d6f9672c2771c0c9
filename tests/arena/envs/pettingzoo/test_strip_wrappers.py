"""PettingZoo's checks come off, and nothing else does; the game stays the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pettingzoo.utils.wrappers import BaseWrapper, OrderEnforcingWrapper, TerminateIllegalWrapper

from arena.envs.pettingzoo.cycle_to_parallel import strip_checking_wrappers
from arena.envs.registry import make_environment


def make(environment: str) -> Any:
    return make_environment(environment, kwargs={}, api="aec", launch_directory=".")


@pytest.mark.parametrize("environment", ["classic/connect_four-v3", "classic/tictactoe-v3"])
def test_the_same_moves_lead_to_the_same_game(environment: str) -> None:
    checked, bare = make(environment), strip_checking_wrappers(make(environment), has_masks=True)
    assert bare is bare.unwrapped
    rng = np.random.default_rng(1)
    for game in range(20):
        checked.reset(seed=game)
        bare.reset(seed=game)
        while checked.agents:
            agent = checked.agent_selection
            assert agent == bare.agent_selection
            assert checked.rewards == bare.rewards
            assert checked.terminations == bare.terminations
            assert checked.truncations == bare.truncations
            seen, other = checked.observe(agent), bare.observe(agent)
            assert (seen["observation"] == other["observation"]).all()
            assert (seen["action_mask"] == other["action_mask"]).all()
            over = checked.terminations[agent] or checked.truncations[agent]
            action = None if over else int(rng.choice(np.flatnonzero(seen["action_mask"])))
            checked.step(action)
            bare.step(action)
        assert not bare.agents


def test_an_environment_without_masks_keeps_the_wrapper_that_ends_illegal_games() -> None:
    env = strip_checking_wrappers(make("classic/connect_four-v3"), has_masks=False)
    assert type(env) is TerminateIllegalWrapper


def test_a_users_wrapper_stops_it() -> None:
    class Mine(BaseWrapper):  # type: ignore[misc]
        """A user's wrapper: what it does is none of our business."""

    inner = make("classic/connect_four-v3")
    env = OrderEnforcingWrapper(Mine(inner))
    assert type(strip_checking_wrappers(env, has_masks=True)) is Mine
