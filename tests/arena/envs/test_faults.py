"""What PettingZoo forbids, or nobody can train on, is refused at the boundary with its name."""

from __future__ import annotations

import pytest
import torch

from arena.errors import EnvironmentFault

from .conftest import Make, play_batched


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (
            "nan_observation",
            "agent 'a': an observation must be finite.* got nan",
        ),
        ("no_observation", r"agent 'a': an observation must have shape \(3,\), got \(\)"),
        ("nan_reward", "agent 'b': a reward must be finite.* got nan"),
        (
            "infinite_reward",
            "agent 'b': a reward must be finite.* got .*-inf",
        ),
        ("text_reward", "agent 'b': a reward must be finite.* got 'much'"),
        (
            "array_reward",
            r"agent 'b': a reward must be one number, not an array of shape \(1,\), got array",
        ),
        ("strange_agent", "agent 'c' has a reward but is no possible agent"),
        ("step_raises", "in step, agent 'b' on turn, raised KeyError: 'board'"),
        ("only_dead_on_turn", "only dead agents are on turn, the last is 'a'"),
    ],
)
def test_faults_in_turns(fault: str, text: str, make: Make) -> None:
    made = make("environments:FaultyTurns", kwargs={"fault": fault})
    with pytest.raises(EnvironmentFault, match=text) as caught:
        play_batched(made, seeds=[1, 2, 3], num_steps=2)
    assert str(caught.value).startswith("environment environments:FaultyTurns ")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (
            "nan_observation",
            "agent 'b': an observation must be finite.* got nan",
        ),
        ("infinite_reward", "agent 'b': a reward must be finite.* got inf"),
        ("step_raises", r"in step, agents \['a', 'b', 'c'\] on turn, raised ValueError: no board"),
        ("no_final_observation", "agent 'b' was truncated and must have a last observation"),
    ],
)
def test_faults_at_once(fault: str, text: str, make: Make) -> None:
    made = make("environments:ScriptedParallel", kwargs={"fault": fault})
    with pytest.raises(EnvironmentFault, match=text):
        play_batched(made, seeds=[1, 2, 3], num_steps=3)


@pytest.mark.parametrize("where", ["info", "observation"])
def test_an_empty_mask(where: str, make: Make) -> None:
    made = make("environments:MaskedTurns", kwargs={"where": where, "empty_at": 3})
    with pytest.raises(EnvironmentFault, match="agent 'b': an action mask must allow an action"):
        play_batched(made, seeds=[1, 2, 3], num_steps=4)


def test_an_exception_that_has_no_text_is_a_fault_of_the_environment(make: Make) -> None:
    made = make("faulty:Rounds", kwargs={"fault": "untold"})
    with pytest.raises(EnvironmentFault, match=r"raised Untold: \(its text cannot be read\)"):
        play_batched(made, seeds=[1, 2, 3], num_steps=4)


def test_an_exception_that_is_no_utf8_is_a_fault_of_the_environment(make: Make) -> None:
    made = make("faulty:Rounds", kwargs={"fault": "surrogates"})
    with pytest.raises(EnvironmentFault, match=r"in step, .* raised RuntimeError: ."):
        play_batched(made, seeds=[1, 2, 3], num_steps=4)


def test_dead_after_reset(make: Make) -> None:
    made = make("environments:FaultyTurns", kwargs={"fault": "reset_into_death"})
    with pytest.raises(EnvironmentFault, match="in reset: after reset an agent must be alive"):
        made.env.reset([1, 2, 3])


def test_a_batch_is_usable_again_after_a_fault(make: Make) -> None:
    made = make("environments:FaultyTurns", kwargs={"fault": "nan_reward"})
    for _ in range(2):
        with pytest.raises(EnvironmentFault, match="got nan"):
            play_batched(made, seeds=[1, 2, 3], num_steps=5)


def test_the_fault_says_where_in_the_batch(make: Make) -> None:
    made = make("environments:FaultyTurns", kwargs={"fault": "nan_observation"})
    text = r"FaultyTurns at 0 in the batch: agent 'a': an observation .* got nan at position 1 of 3"
    with pytest.raises(EnvironmentFault, match=text):
        play_batched(made, seeds=[1, 2, 3], num_steps=2)


def test_what_nobody_is_told_may_be_anything(make: Make) -> None:
    made = make("environments:FaultyTurns", kwargs={"fault": "nan_observation"})
    with pytest.raises(EnvironmentFault, match="got nan"):
        play_batched(made, seeds=[1, 2, 3], num_steps=2)
    # The faulty row is still there, but its environment has no decision.
    made.env.reset([1, 2, 3])
    name = next(iter(made.populations))
    turn = made.env.step({name: torch.zeros(3, 1, dtype=torch.int64)})
    made.env.halt(torch.tensor([True, True, True]))
    turn.groups[name].observation.fill_(torch.nan)
    turn = made.env.step({name: torch.zeros(3, 1, dtype=torch.int64)})
    assert (turn.groups[name].agent_index == -1).all()
