from __future__ import annotations

import pytest

from arena.environment_spec import EnvironmentRequest
from arena.envs.checks.native_play import look
from arena.envs.checks.native_watch import Look
from arena.envs.inspect import inspect_environment
from arena.envs.registry import make_environment


def played(environment_id: str, *, num_decisions: int, **kwargs: object) -> Look:
    spec = inspect_environment(
        EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory=".")
    )
    return look(
        lambda: make_environment(environment_id, kwargs=kwargs, api=spec.api, launch_directory="."),
        spec=spec,
        num_decisions=num_decisions,
    )


def test_cooperative_pong_is_black_without_a_render_mode() -> None:
    """What PettingZoo 1.27 does; if this fails, it has been mended, and documents say too much."""
    black = "uint8(280, 480, 3) in [0, 0]"
    seen = played("butterfly/cooperative_pong-v6", num_decisions=20)
    assert seen.unchanging == {"paddle_0": black, "paddle_1": black}
    assert seen.problems == []


def test_cooperative_pong_is_drawn_with_one() -> None:
    seen = played("butterfly/cooperative_pong-v6", num_decisions=20, render_mode="rgb_array")
    assert seen.unchanging == {}


@pytest.mark.parametrize(("num_decisions", "unchanging"), [(100, {"speaker_0"}), (400, set())])
def test_what_stays_for_an_episode_is_told_from_what_never_changes(
    num_decisions: int, unchanging: set[str]
) -> None:
    # The first two episodes have the same goal, which is all that the speaker sees.
    seen = played("mpe2/simple_speaker_listener_v4", num_decisions=num_decisions)
    assert seen.unchanging.keys() == unchanging
