from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import Digest, LearnerId, PackageVersion
from populations.controller.state.events import LearnerJoined
from populations.controller.state.state import make_state
from tests.populations.controller.simulated import DUEL, World, make_world

ONE, TWO = Digest("1" * 64), Digest("2" * 64)
RECORDED = {"torch": "2.13.0", "numpy": "2.4.0", "mpe2": "0.0.1"}
EQUAL = {name: PackageVersion(version) for name, version in RECORDED.items()}


def world_of(*, deterministic: bool = False) -> World:
    world = make_world({**DUEL, "learners": 1, "deterministic": deterministic})
    world.state.settings.versions = RECORDED
    return world


def say_hello(world: World, name: str, **changes: object) -> str | None:
    """Say Hello as nobody has yet; return the reason of the refusal, if it was one."""
    learner = LearnerId(name)
    hello = replace(world.hello(learner), learner=learner, **changes)
    world.handle(LearnerJoined(learner=learner, hello=hello, slot=None))
    return dict(world.refused).get(learner)


def test_a_proof_and_other_versions_are_in_the_event() -> None:
    world = world_of()
    versions = {**EQUAL, "torch": PackageVersion("2.12.1"), "scipy": PackageVersion("1.0")}
    del versions["mpe2"]
    assert say_hello(world, "one", proof=ONE, versions=versions) is None
    assert say_hello(world, "plain") is None
    one, plain = (event.data for event in world.events("learner_joined"))
    assert one["proof"] == ONE
    assert one["versions"] == {"torch": ["2.13.0", "2.12.1"], "mpe2": ["0.0.1", None]}
    assert (plain["proof"], plain["versions"]) == (None, {})


def test_a_run_that_is_not_deterministic_takes_learners_of_any_group() -> None:
    world = world_of()
    assert [say_hello(world, name, proof=proof) for name, proof in (("a", ONE), ("b", TWO))] == [
        None,
        None,
    ]
    assert world.state.tables.run.proof == ""


def test_a_deterministic_run_takes_the_group_of_its_first_proof_alone() -> None:
    world = world_of(deterministic=True)
    # Before a group exists, a learner without a proof does not belong to another group.
    assert say_hello(world, "old") is None
    assert say_hello(world, "first", proof=ONE, versions=EQUAL) is None
    assert world.state.tables.run.proof == ONE
    assert say_hello(world, "same", proof=ONE, versions=EQUAL) is None
    refused = say_hello(world, "other", proof=TWO, versions=EQUAL)
    assert refused == (
        "results differ: the proof of the run's learners has digest 11111111, this one's has "
        "22222222, and where deterministic is true all must agree bit by bit; usually the CPU type "
        "or the version of torch differs, or the environment ignores its seed; its packages have "
        "the versions of the run"
    )
    unproven = say_hello(world, "unproven")
    assert unproven is not None
    assert "has digest 11111111, this one has none, and" in unproven
    assert world.state.tables.run.proof == ONE


def test_the_group_of_a_deterministic_run_is_kept_across_a_resume() -> None:
    world = world_of(deterministic=True)
    say_hello(world, "first", proof=ONE)
    # A resume makes the state from committed rows in this way.
    world.state = make_state(world.state.settings.config, world.setup, world.state.tables)
    refused = say_hello(world, "other", proof=TWO)
    assert refused is not None
    assert refused.startswith("results differ")
    assert say_hello(world, "again", proof=ONE) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"environment_digest": TWO}, "environment differs: "),
        ({"config_digest": TWO}, "configuration differs: "),
        ({"populations": ("nobody",)}, "unknown populations "),
        ({}, "results differ: "),
    ],
    ids=["environment", "configuration", "population", "group"],
)
def test_the_first_rule_that_is_broken_is_told(changes: dict[str, object], said: str) -> None:
    """Of a learner whose results differ, too, because of something else."""
    world = world_of(deterministic=True)
    say_hello(world, "first", proof=ONE)
    refused = say_hello(world, "other", proof=TWO, **changes)
    assert refused is not None
    assert refused.startswith(said)


@pytest.mark.parametrize("field", ["environment_digest", "config_digest"])
def test_a_refusal_names_the_versions_that_differ_and_the_command_that_installs_the_runs(
    field: str,
) -> None:
    world = world_of()
    versions = {**EQUAL, "torch": PackageVersion("2.12.1")}
    del versions["mpe2"]
    refused = say_hello(world, "other", versions=versions, **{field: TWO})
    assert refused is not None
    assert refused.endswith(
        "; packages of other versions: torch 2.13.0 (the learner has 2.12.1), mpe2 0.0.1 (the "
        "learner has none): pip install torch==2.13.0 mpe2==0.0.1"
    )
    same = say_hello(world, "equal", versions=EQUAL, **{field: TWO})
    assert same is not None
    assert same.endswith("; its packages have the versions of the run")
    silent = say_hello(world, "silent", **{field: TWO})
    assert silent is not None
    assert silent.endswith("the learner's 22222222")


def test_a_kind_of_device_that_is_new_at_a_resume_is_an_event() -> None:
    world = world_of()
    for name, device in (("a", "cpu"), ("b", "cuda:0"), ("c", "cuda:1")):
        say_hello(world, name, device=device)
    assert world.state.tables.run.devices == ("cpu", "cuda")
    # A launch on several kinds of devices is not a change of devices.
    assert world.events("device_differs") == []
    world.state.tables.run = replace(world.state.tables.run, epoch=2, devices=("cuda",))
    for name, device in (("d", "cuda:3"), ("e", "cpu"), ("f", "cpu")):
        say_hello(world, name, device=device)
    (event,) = world.events("device_differs")
    assert (event.subject, event.data) == ("e", {"device": "cpu", "before": ["cuda"]})


def test_learners_that_make_devices_up_are_of_one_kind() -> None:
    world = world_of()
    for number in range(5):
        say_hello(world, f"one-{number}", device=f"made-up-{number}:0")
    assert world.state.tables.run.devices == ("other",)
