from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from arena.config import EnvironmentConfig, LearnerSetup, NetworkConfig
from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.inspect import inspect_environment
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.errors import ConfigError
from arena.learners import proof
from arena.learners.proof import check_code, prove, results_digest
from arena.learners.smoke_training import SmokeTraining, run_smoke_training
from tests.arena.learners.conftest import HYPERPARAMETERS, NUM_ENVS, Bench, make_setup
from tests.arena.wire.examples import HELLO

ASSETS = Path(__file__).parents[2] / "assets"


def go_on() -> bool:
    return False


def digest(setup: LearnerSetup) -> str:
    found = results_digest(setup, should_stop=go_on)
    assert found is not None
    return found


def test_the_digest_is_that_of_the_results_and_of_nothing_else(
    make_bench: Callable[..., Bench],
) -> None:
    here, there = make_bench("here"), make_bench("there")
    ours = digest(make_setup(here.root))
    assert digest(make_setup(there.root).model_copy(update={"run": "other"})) == ours
    other = NetworkConfig(hidden_sizes=(16,))
    assert digest(make_setup(here.root, network=other)) != ours
    assert not list(here.root.iterdir()), "it has a store of its own"


def test_it_shows_one_bit_of_a_weight(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = digest(make_setup(bench.root))
    adam = torch.optim.Adam.step

    def on_another_machine(optimizer: torch.optim.Adam, *arguments: Any) -> Any:
        result = adam(optimizer, *arguments)
        with torch.no_grad():
            weight = optimizer.param_groups[0]["params"][0].view(-1)[:1]
            weight.copy_(torch.nextafter(weight, torch.full_like(weight, torch.inf)))
        return result

    monkeypatch.setattr(torch.optim.Adam, "step", on_another_machine)
    assert digest(make_setup(bench.root)) != ours


def test_results_are_the_same_with_and_without_a_proof_before(
    make_bench: Callable[..., Bench],
) -> None:
    """A birth, and trainings that go on with the episodes in flight."""
    results = []
    for name, proves in (("without", False), ("with", True)):
        bench = make_bench(name)
        make = bench.env

        def env(make: Callable[[], Any] = make) -> Any:
            made = make()
            made.length = lambda seed, episode: 11
            return made

        bench.env = env
        worker = bench.worker()
        checkpoint, updates = bench.start(worker), 0
        for seed in (7, 8):
            if proves:
                digest(make_setup(bench.root))
            message = bench.train(
                checkpoint, bench.mirror(), agent_steps=48, seed=seed, learner_updates=updates
            )
            done = bench.finished(
                worker.carry_out(structs.replace(message, carried=(bench.mirror(),)))
            )
            checkpoint = done.checkpoints[0].checkpoint
            updates = bench.manifest(checkpoint).learner_updates
            assert done.in_flight
            results.append((bench.weights_sha256(checkpoint), done.tallies))
        assert done.tallies, "episodes of the assignment before have ended"
        worker.close()
    assert results[:2] == results[2:]


def test_it_leaves_the_global_generators_as_they_were(bench: Bench) -> None:
    def draws() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    def seed() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seed()
    expected = draws()
    seed()
    digest(make_setup(bench.root))
    assert draws() == expected


def test_a_training_that_fails_or_is_stopped_has_no_digest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make_setup(bench.root)
    assert results_digest(setup, should_stop=lambda: True) is None
    monkeypatch.setattr(proof, "MAX_S", -1.0)
    assert results_digest(setup, should_stop=go_on) is None

    def broken(*_: object, **__: object) -> object:
        raise ValueError("no board")

    monkeypatch.undo()
    monkeypatch.setattr("arena.learners.work.worker.make_batched_env", broken)
    assert results_digest(setup, should_stop=go_on) is None


def test_it_plays_in_few_environments_and_without_a_warm_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make_setup(bench.root)
    # The bot does not exist, so the warm-up would fail.
    warm_up = {"agent_steps": 10**6, "player": "bot:no_such_bots:Bot"}
    player = {**setup.populations["player"].model_dump(), "normalizer_warm_up": warm_up}
    warm = LearnerSetup.model_validate({**setup.model_dump(), "populations": {"player": player}})
    assert digest(warm) == digest(setup)
    monkeypatch.setattr(proof, "MAX_ENVS", NUM_ENVS - 1)
    asked = []

    def make_env(request: EnvsRequest, **_: object) -> object:
        asked.append(request.num_envs)
        return bench.env()

    monkeypatch.setattr("arena.learners.work.worker.make_batched_env", make_env)
    results_digest(setup, should_stop=go_on)
    assert set(asked) == {NUM_ENVS - 1}


def in_assets(tmp_path: Path, **environment: object) -> LearnerSetup:
    """A setup whose code is in tests/assets."""
    setup = make_setup(tmp_path)
    given = {**setup.environment.model_dump(), **environment}
    return setup.model_copy(
        update={
            "launch_directory": str(ASSETS),
            "environment": EnvironmentConfig.model_validate(given),
        }
    )


@pytest.mark.parametrize("name", ["environment", "outcome", "algorithm", "encoder", "warm-up"])
@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("no_such_game.rules:Game", "no_such_game.rules:Game: there is no module 'no_such_game'"),
        ("faulty:NoSuchGame", "faulty:NoSuchGame: faulty has no 'NoSuchGame'"),
    ],
)
def test_missing_code_is_named_with_where_it_was_looked_for_and_how_to_name_another_place(
    tmp_path: Path, name: str, reference: str, said: str
) -> None:
    in_environment = {"environment": {"id": reference}, "outcome": {"outcome": reference}}
    setup = in_assets(tmp_path, **in_environment.get(name, {}))
    changes: dict[str, dict[str, object]] = {
        "algorithm": {"algorithm": reference},
        "encoder": {"network": NetworkConfig(encoder=reference)},
        "warm-up": {"normalizer_warm_up": {"agent_steps": 1, "player": f"bot:{reference}(x=1)"}},
    }
    player = {**setup.populations["player"].model_dump(), **changes.get(name, {})}
    setup = LearnerSetup.model_validate({**setup.model_dump(), "populations": {"player": player}})
    with pytest.raises(ConfigError) as refused:
        check_code(setup)
    assert str(refused.value).startswith(said)
    assert str(ASSETS) in str(refused.value)
    assert str(refused.value).endswith("arena learner --code DIR")


def test_code_that_is_there_and_names_of_arenas_own_pass(tmp_path: Path) -> None:
    check_code(in_assets(tmp_path, id="faulty:Rounds"))
    check_code(in_assets(tmp_path, id="openspiel:kuhn_poker"))


def inspected(**kwargs: object) -> EnvironmentSpec:
    return inspect_environment(
        EnvironmentRequest("faulty:Rounds", kwargs=kwargs, launch_directory=str(ASSETS))
    )


def test_the_environment_is_told_as_this_host_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spaces in run.yaml are another's: the game has an action less here."""
    monkeypatch.setattr(proof, "results_digest", lambda *_, **__: "0" * 64)
    here = inspected()
    lessons: tuple[dict[str, object], ...] = ({"fault": "slow"}, {})
    spec = replace(here, lessons=lessons, versions={"no-such-package": "1"})
    setup = in_assets(tmp_path, id="faulty:Rounds").model_copy(update={"spec": spec})
    said = prove(HELLO, setup, should_stop=go_on)
    assert said.environment_digest == spec.digest
    assert said.proof == "0" * 64
    assert said.versions is not None
    assert said.versions["torch"].startswith(torch.__version__.partition("+")[0])
    assert "no-such-package" not in said.versions
    wider = {
        name: replace(one, action={"kind": "Discrete", "n": 3, "start": 0})
        for name, one in spec.agent_specs.items()
    }
    other = setup.model_copy(update={"spec": replace(spec, agent_specs=wider)})
    said = prove(HELLO, other, should_stop=go_on)
    assert said.environment_digest == spec.digest != other.spec.digest
    assert said.proof is None, "policies of those spaces cannot play here"


ROLLOUT = 8 * NUM_ENVS
"""Decisions: one in each environment, eight calls of step."""


def tried(bench: Bench, **changes: Any) -> SmokeTraining:
    arguments = {"agent_steps": 2 * ROLLOUT, "matches": 4, **changes}
    return run_smoke_training(
        make_setup(bench.root), hyperparameters={"player": HYPERPARAMETERS}, **arguments
    )


def test_it_trains_and_plays_against_random_play(bench: Bench) -> None:
    trial = tried(bench)
    assert trial.problem == ""
    assert trial.agent_steps == 2 * ROLLOUT
    # There are two rollouts, each with two epochs of two minibatches.
    assert trial.learner_updates == 8
    assert trial.matches == 4
    assert trial.score is not None
    assert 0.0 <= trial.score <= 1.0
    assert trial.mean_return is not None
    assert set(trial.entropy) == {"player"}
    # The bound is ln 3 for three actions.
    assert 0.0 < trial.entropy["player"] <= 1.0987
    assert not list(bench.root.iterdir()), "the run directory is not its own"


def test_without_matches(bench: Bench) -> None:
    trial = tried(bench, matches=0)
    assert trial.learner_updates == 8
    assert (trial.matches, trial.score, trial.mean_return) == (0, None, None)


def test_what_fails_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ValueError("no board")

    monkeypatch.setattr("arena.learners.work.worker.make_batched_env", broken)
    said, *lines = tried(bench).problem.splitlines()
    assert said.startswith("making environment ")
    assert said.endswith(" raised ValueError: no board")
    # The traceback has the frame of the user's file, which this test file is here, and none of
    # Arena.
    assert lines == [lines[0], '    raise ValueError("no board")']
    assert lines[0].endswith("in broken")
