from __future__ import annotations

import numpy as np
import pytest
from pettingzoo.butterfly import cooperative_pong_v6

from tests.assets.pixels import EVERY, PongPictures

MAX_STEPS = 100


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_pettingzoos_game(seed: int) -> None:
    """Move by move: what is seen, what is paid, when it ends."""
    theirs = cooperative_pong_v6.parallel_env(render_mode="rgb_array")
    ours = PongPictures(frames=1)
    generator = np.random.default_rng(seed)
    their_pictures, _ = theirs.reset(seed=seed)
    our_pictures, _ = ours.reset(seed=seed)
    for _ in range(MAX_STEPS):
        for agent, picture in our_pictures.items():
            assert picture.dtype == np.uint8
            np.testing.assert_array_equal(
                picture, their_pictures[agent][::EVERY, ::EVERY, :1], strict=True
            )
        if not theirs.agents:
            break
        actions = {agent: int(generator.integers(3)) for agent in theirs.agents}
        their_pictures, *told, _ = theirs.step(actions)
        our_pictures, *told_by_us, _ = ours.step(actions)
        assert told_by_us == told
    assert ours.agents == theirs.agents == []
    theirs.close()
    ours.close()


def test_several_frames_are_one_decision() -> None:
    single, triple = PongPictures(frames=1), PongPictures(frames=3)
    single.reset(seed=5)
    triple.reset(seed=5)
    actions = {"paddle_0": 1, "paddle_1": 2}
    while triple.agents:
        rewards = triple.step(actions)[1]
        paid = 0.0
        for _ in range(3):
            if single.agents:
                paid += single.step(actions)[1]["paddle_0"]
        assert rewards == {"paddle_0": pytest.approx(paid), "paddle_1": pytest.approx(paid)}
    assert single.agents == []
