"""Processes that step environments end with their parent, and leave nothing behind."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from arena.envs.make import make_batched_env
from arena.envs.workers.crew import Crew
from arena.envs.workers.envs import EnvWorkers
from arena.errors import EnvironmentFault, EnvWorkersLost
from tests.arena.envs.workers.test_worker_envs import SEEDS, Game, faulty

GAME = Game(id="classic/rps-v2")


@pytest.fixture
def workers() -> Iterator[EnvWorkers]:
    with closing(EnvWorkers(2)) as crew:
        yield crew


def crew_of(workers: EnvWorkers) -> Crew:
    assert workers._crew is not None
    return workers._crew


def is_gone(pid: int) -> bool:
    """Whether a process is no more, or waits for its parent to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def open_files() -> set[str]:
    """Descriptors and mappings of this process, by what they are of."""
    found = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{fd.name} {fd.readlink()}")
        except OSError:
            continue
    return found


def mapped() -> int:
    """Number of mappings of environments' memory."""
    return Path("/proc/self/maps").read_text().count("memfd:arena-environments")


def test_a_killed_worker_is_named_and_others_are_started_for_the_next_batch(
    workers: EnvWorkers,
) -> None:
    one = make_batched_env(faulty("Rounds", "").request(), workers=workers)
    other = make_batched_env(faulty("Rounds", "").request(), workers=workers)
    turn = one.reset(SEEDS)
    other.reset(SEEDS)
    before = crew_of(workers)
    os.kill(before.pids[1], signal.SIGKILL)
    with pytest.raises(
        EnvWorkersLost,
        match=r"environment faulty:Rounds in step: process 2 of 2 that step environments "
        r"\(environment.num_env_workers\) was killed by SIGKILL, perhaps for lack of memory",
    ):
        one.step({name: group.new_actions() for name, group in turn.groups.items()})
    # The same processes stepped these environments.
    with pytest.raises(EnvWorkersLost, match="was killed by SIGKILL"):
        other.reset(SEEDS)
    for env in (one, other):
        env.close()
    assert all(map(is_gone, before.pids))
    with closing(make_batched_env(GAME.request(), workers=workers)) as anew:
        anew.reset(SEEDS)
    assert crew_of(workers) is not before


def test_an_environment_that_exits_is_a_fault_of_the_environment(workers: EnvWorkers) -> None:
    game = faulty("Rounds", "exits", share=1.0)
    with closing(make_batched_env(game.request(), workers=workers)) as env:
        turn = env.reset(SEEDS)
        actions = {name: group.new_actions() for name, group in turn.groups.items()}
        env.step(actions)
        with pytest.raises(EnvironmentFault, match=r"in step, .* raised SystemExit"):
            env.step(actions)
        # The processes are alive, and so are their environments.
        env.reset(SEEDS)


def test_processes_hear_no_signal_of_a_group_and_end_when_they_are_closed() -> None:
    workers = EnvWorkers(2)
    env = make_batched_env(GAME.request(), workers=workers)
    env.reset(SEEDS)
    crew = crew_of(workers)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for pid in crew.pids:
            os.kill(pid, number)
    env.reset(SEEDS)
    env.close()
    workers.close()
    assert [worker.poll() for worker in crew._workers] == [0, 0]


@pytest.mark.slow
def test_nothing_is_left_open_or_mapped() -> None:
    gc.collect()
    before, mapped_before = open_files(), mapped()
    workers = EnvWorkers(2)
    for _ in range(3):
        env = make_batched_env(GAME.request(), workers=workers)
        env.reset(SEEDS)
        assert mapped() > mapped_before
        env.close()
        del env
        gc.collect()
        assert mapped() == mapped_before
    for pid in crew_of(workers).pids:
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert "memfd:arena-environments" not in maps
    workers.close()
    assert open_files() <= before


def test_after_an_interrupted_call_they_are_not_asked_again(workers: EnvWorkers) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    env = make_batched_env(GAME.request(), workers=workers, on_step=interrupt)
    turn = env.reset(SEEDS)
    actions = {name: group.new_actions() for name, group in turn.groups.items()}
    with pytest.raises(KeyboardInterrupt):
        env.step(actions)
    with pytest.raises(EnvironmentFault, match="the call before was interrupted"):
        env.step(actions)
    env.close()
