"""Proof of a learner that joins from anywhere: its environment, its packages, its results.

The proof is made once, before the Hello, by each learner of a run that others can join; other
learners skip it. It changes no later result: it has a worker and a store of its own, and restores
the global generators. (Users' code that keeps state between episodes has played some more of them.)

Tests: `tests/arena/learners/test_proof.py`, `tests/integration/test_joining_proofs.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from msgspec import structs

from arena.bots.ids import parse_bot
from arena.config import LearnerSetup
from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.batched.find import names_code
from arena.envs.inspect import inspect_environment
from arena.errors import ConfigError
from arena.learners.versions import RECORDED_PACKAGES, installed
from arena.resolve import resolve
from arena.types import Digest
from arena.wire.messages import Hello

logger = logging.getLogger(__name__)

MAX_ENVS = 128
"""Environments of the training. With 32 steps and 4 minibatches a product sums over 1000 rows: more
than the blocks in which CPU types sum differently, so the digest depends on the CPU type."""

MAX_S = 30.0
"""Longest training; a slower environment yields no digest to compare."""


def prove(hello: Hello, setup: LearnerSetup, *, should_stop: Callable[[], bool]) -> Hello:
    """Return the Hello with the versions, environment and results of this host.

    Args:
        hello: Hello made from the setup.
        setup: Setup of the learner.
        should_stop: Function that returns whether the learner is to end.

    Raises:
        ConfigError: If users' code or the environment is missing here.
        EnvironmentFault: If the environment's reset fails.
    """
    check_code(setup)
    spec = _inspect(setup)
    is_equal = spec.digest == setup.spec.digest
    return structs.replace(
        hello,
        environment_digest=spec.digest,
        versions=installed((*RECORDED_PACKAGES, *setup.spec.versions)),
        # A learner with another environment is refused, and its spaces do not fit the setup.
        proof=results_digest(setup, should_stop=should_stop) if is_equal else None,
    )


def check_code(setup: LearnerSetup) -> None:
    """Import the users' code that the setup names.

    Raises:
        ConfigError: If something is missing or cannot be imported; names the directories searched.
    """
    for reference in _references(setup):
        try:
            resolve(reference, launch_directory=setup.launch_directory)
        except ConfigError as error:
            raise ConfigError(
                f"{error}; if your code is in another directory of this machine, name that with "
                "arena learner --code DIR"
            ) from error


def _references(setup: LearnerSetup) -> Iterator[str]:
    """Yield each ``package.module:Name`` of users' code."""
    environment = setup.environment
    if names_code(environment.id):
        yield environment.id
    if isinstance(environment.outcome, str) and ":" in environment.outcome:
        yield environment.outcome
    for population in setup.populations.values():
        for named in (population.algorithm, population.network.encoder):
            if ":" in named:
                yield named
        warm_up = population.normalizer_warm_up
        bot = None if warm_up is None else parse_bot(warm_up.player)
        if bot is not None:
            yield bot.reference


def _inspect(setup: LearnerSetup) -> EnvironmentSpec:
    """Inspect the environment of matches as a launch does, in a child process."""
    found = inspect_environment(
        EnvironmentRequest(
            setup.environment.id,
            kwargs=setup.spec.kwargs,
            launch_directory=setup.launch_directory,
            backend=setup.environment.possible_backend,
            possible_agents=setup.environment.possible_agents,
            reads_state=setup.reads_state,
        )
    )
    # Arguments of lessons are configuration; each is checked when its lesson begins.
    return replace(found, lessons=setup.spec.lessons)


def results_digest(setup: LearnerSetup, *, should_stop: Callable[[], bool]) -> Digest | None:
    """Return the digest of a small training from a fixed seed, on the learner's device.

    One policy of each population plays one rollout against itself and learns from it.

    Args:
        setup: Setup of the learner.
        should_stop: Function that returns whether to give up.

    The digest, which is equal on machines that compute bit by bit alike; None: the training failed
        or took too long.
        too long.
    """
    import torch

    from arena.learners.smoke_training import run_smoke_training
    from arena.matches.seeds import generators_kept

    # Learners use one thread (`make_worker`): several threads sum in another order.
    torch.set_num_threads(1)
    until_s = time.monotonic() + MAX_S
    with generators_kept(num_devices=torch.cuda.device_count()):
        training = run_smoke_training(
            _made_small(setup),
            hyperparameters={},
            agent_steps=1,
            matches=0,
            should_stop=lambda: should_stop() or time.monotonic() > until_s,
        )
    if training.results is None:
        logger.warning("no results to compare with other learners': %s", training.problem)
    return training.results


def _made_small(setup: LearnerSetup) -> LearnerSetup:
    num_envs = min(setup.num_envs, MAX_ENVS)
    return setup.model_copy(
        update={
            "environment": setup.environment.model_copy(update={"num_envs": num_envs}),
            "populations": {
                # A bot's warm-up may take any number of steps and shows nothing about results of
                # learning.
                name: population.model_copy(update={"normalizer_warm_up": None})
                for name, population in setup.populations.items()
            },
        }
    )
