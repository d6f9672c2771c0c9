"""What `arena launch` does where sizes are left to it: the run itself is not served."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from arena.config import MarginOutcome
from populations.config.run_config import load_config
from populations.config.run_file import RunFile, check_resume
from populations.errors import ResumeRefused
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    TAG,
    duel_spec,
    duet_spec,
    make_config,
    tag_spec,
)
from tests.support import exit_code

sizing: Any = importlib.import_module("populations.commands.launch.sizing")
ASSETS = Path(__file__).parents[2] / "assets"

Launch = Callable[..., tuple[RunFile, str]]


@pytest.fixture
def launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Launch:
    """Launches a configuration of one line; what is in run.yaml then, and what was said."""
    command = importlib.import_module("populations.commands.launch.command")
    monkeypatch.setattr(command, "serve", lambda *_, **__: None)
    monkeypatch.chdir(ASSETS)

    def run(environment: str, *overrides: str, code: int = 0) -> tuple[RunFile, str]:
        config = tmp_path / "mine.yaml"
        config.write_text(f"environment: {environment}\n")
        target = tmp_path / "run"
        ended = exit_code("launch", config, *overrides, "--run-dir", target, "--force")
        said = capsys.readouterr().err
        assert ended == code, said
        return RunFile.load(target / "run.yaml") if code == 0 else None, said  # type: ignore[return-value]

    return run


@pytest.mark.slow
def test_sizes_are_said_and_kept(launch: Launch, tmp_path: Path) -> None:
    run_file, said = launch("{id: 'environments:Long', kwargs: {length: 4000, megabytes: 3}}")
    # 16 s / 4,000 steps are 4 ms for a call of step, 1 ms of which is not the environment's.
    assert run_file.config.environment.num_envs in (8, 16, 32, 64)
    measured = run_file.environment_measured
    assert measured is not None
    assert (measured.episode_length, measured.is_lower_bound) == (4000.0, False)
    assert measured.env_bytes == pytest.approx(3 << 20, rel=0.2)
    assert f"num_envs {run_file.config.environment.num_envs}: {measured.reason}" in said
    assert measured.reason.startswith("episodes of about 4,000 steps at ")
    assert "assignment.episodes" not in said
    # The resolved values also hold for a run that names the same configuration again.
    config = load_config(tmp_path / "mine.yaml")
    assert config.environment.num_envs == "auto"
    assert check_resume(run_file, config=config)[1] == ()
    assert check_resume(run_file, config=None, overrides=["environment.num_envs=auto"])[1] == ()


@pytest.mark.slow
def test_greedy_matches_without_chance_are_said(launch: Launch) -> None:
    for game, chance in (("openspiel:tic_tac_toe", False), ("openspiel:kuhn_poker", True)):
        run_file, said = launch(f"{{id: '{game}'}}", "evaluation.greedy=true")
        assert run_file.spec.chance is chance
        said = " ".join(said.split())
        assert ("two policies have one game in each seating, which counts once" in said) != chance
        with pytest.raises(ResumeRefused, match=r"evaluation.greedy"):
            check_resume(run_file, config=None, overrides=["evaluation.greedy=false"])
    opened = ("evaluation.greedy=true", "evaluation.random_openings.share=1")
    for overrides in ((), opened):
        _, said = launch("{id: 'openspiel:tic_tac_toe'}", *overrides)
        assert "one game" not in said


@pytest.mark.slow
def test_a_margin_is_measured_and_kept(launch: Launch, tmp_path: Path) -> None:
    margin = "environment.outcome={margin: auto}"
    game = "{id: 'openspiel:leduc_poker'}"
    run_file, said = launch(game)
    assert run_file.config.environment.outcome == "return"
    said = " ".join(said.split())
    assert "rates who wins, not how much; environment.outcome='{margin: auto}' rates" in said
    run_file, said = launch(game, margin)
    assert run_file.config.environment.outcome == MarginOutcome(margin=13.0)
    assert "a margin of 13 is a whole match (the game's range)" in " ".join(said.split())
    assert check_resume(run_file, config=load_config(tmp_path / "mine.yaml", [margin]))[1] == ()
    with pytest.raises(ResumeRefused, match=r"environment.outcome.* cannot become"):
        check_resume(run_file, config=load_config(tmp_path / "mine.yaml"))
    _, said = launch("{id: 'environments:Long', kwargs: {fault: dies}}", margin, code=2)
    assert "environment.outcome.margin must be a number where random play cannot" in said


def test_a_deterministic_run_has_whole_episodes(launch: Launch, tmp_path: Path) -> None:
    run_file, said = launch("{id: classic/tictactoe-v3}", "deterministic=true")
    # A game has seven to eight steps; 16,384 / (256 x 7.75) = 8.3.
    assert run_file.config.environment.num_envs == 256
    assert run_file.config.assignment.episodes == 8
    assert run_file.config.assignment.agent_steps is None
    assert "num_envs 256, assignment.episodes 8: episodes of about 8 steps" in said
    config = load_config(tmp_path / "mine.yaml", ["deterministic=true"])
    assert check_resume(run_file, config=config)[1] == ()


def test_nobody_plays_where_sizes_are_given(launch: Launch) -> None:
    environment = "{id: 'environments:Long', num_envs: 3, kwargs: {fault: dies}}"
    run_file, said = launch(environment)
    assert run_file.config.environment.num_envs == 3
    assert run_file.environment_measured is None
    assert "num_envs" not in said
    run_file, _ = launch(environment, "deterministic=true", "assignment.episodes=2")
    assert run_file.config.assignment.episodes == 2


def test_an_environment_that_play_breaks_has_few(launch: Launch) -> None:
    environment = "{id: 'environments:Long', kwargs: {fault: dies}}"
    run_file, said = launch(environment)
    assert run_file.config.environment.num_envs == 16
    assert run_file.environment_measured is None
    assert "num_envs 16: random play ended the process (SIGKILL)" in said
    _, said = launch(environment, "deterministic=true", code=2)
    assert "environment.num_envs and assignment.episodes must be numbers" in said
    assert "SIGKILL" in said


def crowd(size: int, duration_s: float, document: Mapping[str, object] = DUEL, **more: Any) -> str:
    populations = document["populations"]
    assert isinstance(populations, dict)
    sized = {name: {**population, "size": size} for name, population in populations.items()}
    given = {"populations": sized, "stop": {"duration_s": duration_s}, **more}
    spec = {id(TAG): tag_spec, id(DUET): duet_spec}.get(id(document), duel_spec)()
    return str(sizing.crowd_line(make_config({**document, **given}, spec)))


def test_more_policies_than_learners_carry_in_the_time_are_said() -> None:
    # 719 s of two learners are 179.75 s for each of eight policies, 720 s are 180.
    assert crowd(8, 720) == ""
    assert crowd(8, 719)
    assert crowd(8, 700) == (
        "populations.player.size: 8 policies share 2 learners, so each trains for 2 min 55 s of "
        "11 min 40 s: fewer policies, or pbt.share=halving, train more each"
    )
    # Two policies per learner have a known cost, which gives no remark.
    assert crowd(4, 10) == ""
    assert crowd(5, 10)
    # A learner with two cores gives 179.5 and 180 s; one more comes from elsewhere.
    for time_s, is_said in ((358, True), (360, False)):
        assert bool(crowd(4, time_s, learners=1, learner_cores=2)) is is_said
    joining: dict[str, Any] = {"endpoint": "tcp://127.0.0.1:*", "remote_learners": 1}
    assert (crowd(6, 10, **joining), bool(crowd(7, 10, **joining))) == ("", True)


def test_populations_divide_the_learners_that_they_share() -> None:
    # Two learners for two populations are one each.
    assert crowd(2, 10, TAG, learners=2) == ""
    assert crowd(3, 10, TAG, learners=2).startswith(
        "populations.predator.size: 3 policies share 1 learner, so each trains for 3 s of 10 s"
    )
    own = crowd(3, 10, TAG, learners={"predator": 2, "prey": 1})
    assert own.startswith("populations.prey.size: 3 policies share 1 learner,")
    # Teams, and rivals that learn, train in one assignment.
    assert (crowd(4, 10, DUET), bool(crowd(5, 10, DUET))) == ("", True)
    rivals: dict[str, Any] = {"learners": 2, "matchmaking": {"rivals": "learning"}}
    assert (crowd(4, 10, TAG, **rivals), bool(crowd(5, 10, TAG, **rivals))) == ("", True)


def test_halving_has_room_for_more() -> None:
    # 3 s for each of 24 policies are 36 s of two learners, a fifth of three minutes.
    halving: dict[str, Any] = {"pbt": {"share": "halving"}}
    assert crowd(24, 180, **halving) == ""
    assert crowd(25, 180, **halving) == (
        "populations.player.size: 25 policies share 2 learners, so all have trained once after "
        "38 s of 3 min 00 s (assignment.target_s), and only then the worse half leaves "
        "(pbt.share: halving): with fewer policies those that stay train more"
    )


def test_without_a_time_nothing_is_too_much() -> None:
    config = make_config({**DUEL, "populations": {"player": {"size": 99}}}, duel_spec())
    assert sizing.crowd_line(config) == ""


def test_a_launch_says_so_in_one_line(launch: Launch) -> None:
    game = "{id: classic/tictactoe-v3, num_envs: 8}"
    _, said = launch(game, "learners=2", "stop.duration_s=60")
    (line,) = (line for line in said.splitlines() if "policies" in line)
    assert line.startswith("populations.player.size: 8 policies share 2 learners, so each trains")
    _, said = launch(game, "learners=2", "stop.duration_s=60", "populations.player.size=2")
    assert "policies" not in said
