from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from arena.environment_spec import EnvironmentRequest
from arena.envs.checks.native_play import look
from arena.envs.checks.native_watch import Look, _outside
from arena.envs.checks.time_limit import TimeLimit
from arena.envs.inspect import inspect_environment
from arena.envs.registry import make_environment


def forever() -> None:
    while True:
        try:
            sum(range(100))
        except Exception:
            continue


def test_a_stage_that_never_ends_is_left_and_told_with_its_place() -> None:
    limit = TimeLimit(30.0)
    with limit.stage("spinning", share=0.01):
        forever()
    (when,) = limit.cut_off.values()
    assert list(limit.cut_off) == ["spinning"]
    assert "test_time_limit.py" in when
    assert when.endswith("in forever")
    with limit.stage("quick"):
        pass
    assert list(limit.cut_off) == ["spinning"]


def test_what_was_collected_is_kept() -> None:
    collected: list[int] = []
    with TimeLimit(30.0).stage("collecting", share=0.005):
        while True:
            collected.append(len(collected))
    assert collected == list(range(len(collected)))
    assert collected


def test_a_share_is_of_what_is_left() -> None:
    now_s = 0.0
    limit = TimeLimit(100.0, clock=lambda: now_s)
    now_s = 60.0
    assert limit.left_s == 40.0
    now_s = 200.0
    assert limit.left_s == 0.0
    with limit.stage("too late"):
        forever()
    assert limit.cut_off["too late"].startswith("after 0 s")


def test_a_timer_of_another_is_given_back() -> None:
    rung = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    others = signal.setitimer(signal.ITIMER_REAL, 50.0)
    try:
        with TimeLimit(60.0).stage("short"):
            pass
        left_s, _ = signal.setitimer(signal.ITIMER_REAL, *others)
        assert 40.0 < left_s <= 50.0
        assert callable(signal.getsignal(signal.SIGALRM))
        assert rung == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_in_another_thread_a_stage_takes_as_long_as_it_takes() -> None:
    done = []

    def work() -> None:
        with TimeLimit(0.001).stage("slow"):
            done.append(time.monotonic())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def test_users_errors_pass() -> None:
    with pytest.raises(KeyError), TimeLimit(30.0).stage("broken"):
        raise KeyError("x")


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
    # The first two episodes have the same goal, which is all that the speaker observes.
    seen = played("mpe2/simple_speaker_listener_v4", num_decisions=num_decisions)
    assert seen.unchanging.keys() == unchanging


BOX = Box(0.0, 1.0, (2,), np.float32)


def test_a_wrong_dtype_is_named() -> None:
    text = _outside(np.array([0, 1]), BOX)
    assert text.endswith("; is int64, its space float32: array.astype(np.float32)")


def test_a_wrong_dtype_within_a_dictionary_has_its_key() -> None:
    space = Dict({"board": BOX, "turn": Discrete(2), "mask": Box(0, 1, (2,), np.int8)})
    seen = {"board": np.array([0.0, 1.0]), "turn": 1, "mask": np.ones(2, np.int8)}
    text = _outside(seen, space)
    assert "'board' is float64, its space float32: array.astype(np.float32)" in text
    assert "'mask' is" not in text


def test_a_value_out_of_bounds_has_the_right_dtype() -> None:
    text = _outside(np.array([0.0, 5.0], np.float32), BOX)
    assert "float32(2,) in [0.0, 5.0]" in text
    assert "astype" not in text
    # float32 holds these values exactly, so they are inside the space.
    assert "astype" not in _outside(np.array([0, 5], np.int8), BOX)
