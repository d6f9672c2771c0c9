from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.errors import EnvironmentFault
from tests.arena.learners.conftest import failed, finished, mirror, train
from tests.faults.test_environment_faults import make_batch
from tests.faults.workers import first_checkpoint, make_worker

SEEDS = (3, 1, 4, 1)
RAISED = {
    "exits": "SystemExit",
    "interrupts": "KeyboardInterrupt",
    "closes_generators": "GeneratorExit",
}


@pytest.fixture(autouse=True)
def own_handler() -> Iterator[None]:
    """Handle Ctrl-C as learners do, so that none of its exceptions can be Python's."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("fault", RAISED)
def test_whatever_is_raised_in_a_step_voids_an_episode(fault: str) -> None:
    faults: list[EnvironmentFault] = []
    env = make_batch("faulty:Rounds", faults=faults, fault=fault, share=0.4)
    turn = env.reset(SEEDS)
    num_over = num_void = 0
    for _ in range(40):
        turn = env.step({name: group.new_actions() for name, group in turn.groups.items()})
        num_over += int(turn.episode_over.sum())
        num_void += 0 if turn.void is None else int(turn.void.sum())
    env.close()
    assert num_over > 0
    assert num_void == len(faults) > 0
    assert f"on turn, raised {RAISED[fault]}" in str(faults[0])


def test_a_machine_without_memory_is_no_fault_of_an_environment(tmp_path: Path) -> None:
    """Where so many episodes are void that an assignment fails, with and without processes."""
    for number in (0, 1):
        (tmp_path / str(number)).mkdir()
        worker = make_worker(
            tmp_path / str(number), "faulty:Rounds", num_env_workers=number, fault="memory"
        )
        start = first_checkpoint(worker)
        assert failed(worker.carry_out(train(start, mirror(), agent_steps=10_000))).kind == "place"
        worker.close()


def test_numbers_that_no_training_holds_are_refused(tmp_path: Path) -> None:
    worker = make_worker(tmp_path, "faulty:Rounds", fault="huge_reward", share=0.1)
    start = first_checkpoint(worker)
    answer = finished(worker.carry_out(train(start, mirror(), agent_steps=500)))
    worker.close()
    assert answer.metrics["episode/void"] > 0
    assert answer.metrics.get("update/skipped", 0.0) == 0.0
