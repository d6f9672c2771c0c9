"""Workers on `tests/assets/faulty.py`, and messages for them; nothing is faked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from arena.environment_spec import EnvironmentSpec
from arena.learners.work.worker import Worker
from arena.types import CheckpointRef, Player, PlayerId
from tests.arena.learners.conftest import published, setup_of, train
from tests.arena.samples import Counted, facts_of

ASSETS = Path(__file__).parents[1] / "assets"
RANDOM = Player(player=PlayerId("bot:random"))
NUM_ENVS = 4


def facts(environment: str, kwargs: Mapping[str, object]) -> EnvironmentSpec:
    """Of an environment whose faults spare whoever looks at it first."""
    calm = {**kwargs, "share": 0.0} if environment.startswith("faulty:") else kwargs
    if environment.startswith("changing:"):
        calm = {**kwargs, "when": ""}
    spec = facts_of(environment, calm)
    return replace(spec, kwargs=dict(kwargs))


def make_worker(
    root: Path,
    environment: str,
    *,
    populations: dict[str, tuple[str, ...]] | None = None,
    num_env_workers: int = 0,
    cores: int = 1,
    num_envs: int = NUM_ENVS,
    should_stop: Callable[[], bool] = lambda: False,
    **kwargs: object,
) -> Worker:
    """A worker; each agent is a side, and by default all are one population."""
    spec = facts(environment, kwargs)
    setup = setup_of(
        root,
        spec,
        populations=populations,
        environment={
            "kwargs": dict(kwargs),
            "num_envs": num_envs,
            "num_env_workers": num_env_workers,
        },
        launch_directory=str(ASSETS),
        cores=cores,
    )
    return Worker(setup, progress=Counted(), should_stop=should_stop)


def first_checkpoint(worker: Worker) -> CheckpointRef:
    """What a policy starts from: no environment is needed for it."""
    return published(worker.carry_out(train(None, agent_steps=0)))
