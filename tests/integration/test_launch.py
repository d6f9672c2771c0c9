"""A population from the command line: real processes, real sockets, a real environment."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from arena.games.recording import replay
from arena.wire.messages import Train
from experiments.faults.killing import processes_of
from populations.config.run_file import RUN_FILE, RunFile, learner_setup
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.views.questions.champions import unproven_champions
from populations.views.questions.inspection import Inspection
from tests.faults.runs import finished
from tests.integration.conftest import ARENA, STEPS, Command, launch_arguments, start
from tests.support import wait_until
from tools.players.game import Game

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """A place for a run; no process of it may be left behind."""
    run = tmp_path / "run"
    yield run
    wait_until(lambda: not processes_of(run), timeout_s=5.0)


@pytest.mark.slow
def test_a_population_trains_is_inspected_verified_and_exits_clean(
    arena: Command, arena_json: Callable[..., dict[str, Any]], finished_run: Path
) -> None:
    run_dir = finished_run
    status = arena_json("league", run_dir, "status")
    assert status["state"] == "finished"
    assert status["agent_steps"] >= 18_000
    assert status["champion"]["player"]["rating"] is not None
    standings = arena_json("league", run_dir)["populations"]["player"]
    assert {line["kind"] for line in standings} == {"policy", "ghost", "bot"}
    assert next(line for line in standings if line["player"] == "bot:random")["rating"] == 0.0
    arena("verify", run_dir)
    for view in ("payoff", "lineage", "hyperparameters", "matches", "checkpoints", "events"):
        assert arena_json("league", run_dir, view)
        assert arena("league", run_dir, view, "--csv").stdout
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    points = [json.loads(line) for line in lines]
    assert {point["policy"] for point in points} == {f"player/p00{n}" for n in range(3)} | {"run"}
    for policy in ("player/p000", "player/p001", "player/p002"):
        own = [point for point in points if point["policy"] == policy]
        assert sum("loss/policy" in point for point in own) >= 5
        assert any("rating/mean_elo" in point for point in own)


@pytest.mark.slow
def test_each_game_that_a_run_has_kept_is_played_again_exactly(finished_run: Path) -> None:
    setup = learner_setup(RunFile.load(finished_run / RUN_FILE), root=finished_run)
    with JournalReader(finished_run / JOURNAL) as reader:
        kept = reader.load().games
    assert len(kept) >= 8
    with closing(Game.of_setup(setup).make_env(1)) as env:
        for game in kept.values():
            # `replay` raises an error if a game goes differently.
            assert len(list(replay(env, game))) == game.steps + 1


EXPLORING = (
    "deterministic=true",
    "environment.num_envs=16",
    "populations.player.hyperparameters.num_epochs=2",
    "populations.player.hyperparameters.num_minibatches=4",
    "pbt.reference=false",
    "pbt.resample_probability=1",
    "evaluation.share=0.4",
    "populations.player.search_space={learning_rate: {low: 1e-6, high: 1e-2, log: true}}",
    "stop.agent_steps_per_policy=16000",
)
"""Policies that differ much in their learning rates, so that some fall behind."""


@pytest.fixture(scope="module")
def exploring_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished deterministic run in which policies exploited."""
    run = tmp_path_factory.mktemp("exploring") / "run"
    subprocess.run([*ARENA, *map(str, launch_arguments(run, *EXPLORING))], check=True)
    return run


@pytest.mark.slow
def test_the_learning_rate_in_use_after_an_exploit_is_the_explored_one(
    arena_json: Callable[..., dict[str, Any]], exploring_run: Path
) -> None:
    run_dir = exploring_run
    exploits = [
        event
        for event in arena_json("league", run_dir, "events")["events"]
        if event["kind"] == "exploited" and event["moves"]
    ]
    assert exploits, "policies differ in their learning rates, so somebody is behind"
    with JournalReader(run_dir / JOURNAL) as reader:
        rows = reader.assignments(statuses=("finished",), kind="train")
    in_use: dict[tuple[str, int], float] = {}
    for row in rows:
        assert isinstance(row.message, Train)
        for trainee in row.message.trainees:
            if row.agent_steps:
                rate = row.metrics["optimizer/learning_rate"]
                assert rate == pytest.approx(trainee.hyperparameters["learning_rate"], rel=1e-6)
                in_use[trainee.policy, trainee.generation] = rate
    for event in exploits:
        used = in_use.get((event["subject"], event["generation"]))
        if used is not None:
            assert used == pytest.approx(event["new"]["learning_rate"], rel=1e-6)
            assert event["donor"] != event["subject"]
            assert event["old"] != event["new"]
    assert any((event["subject"], event["generation"]) in in_use for event in exploits)


@pytest.mark.slow
def test_ctrl_c_saves_everything_and_resume_goes_on(
    arena: Command, arena_json: Callable[..., dict[str, Any]], run_dir: Path
) -> None:
    process = start(launch_arguments(run_dir, STEPS, "--learners", "1"))
    wait_until(lambda: finished(run_dir) >= 4, timeout_s=60.0)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=40)
    assert process.returncode == 130
    resume = f"arena launch --resume --run-dir {run_dir}"
    said = error.splitlines()
    last = said[said.index("stopped: interrupted by SIGINT") :]
    assert last[0:3] == [
        "stopped: interrupted by SIGINT",
        f"everything is saved in {run_dir}; to go on:",
        f"  {resume}",
    ]
    assert last[3].startswith("champion: ")
    before = arena_json("league", run_dir, "status")
    assert before["state"] == "stopped"
    # 18 inputs, 16 hidden, 9 actions and the value: 18 * 16 + 16 + 16 * 9 + 9 + 16 + 1
    assert before["parameters"] == {"player": 474}
    assert [line for line in said if "networks of" in line] == [
        "networks of player: 474 parameters"
    ]
    arena("verify", run_dir)
    damaged = _damage_a_current_checkpoint(arena_json, run_dir)
    arena("verify", run_dir, code=5)
    arena("launch", "--resume", "--run-dir", run_dir)
    kinds = {
        event["kind"]
        for event in arena_json("league", run_dir, "events")["events"]
        if event["subject"] == damaged
    }
    assert {"checkpoint_corrupt", "fell_back"} <= kinds
    arena("verify", run_dir)
    after = arena_json("league", run_dir, "status")
    assert after["state"] == "finished"
    assert after["agent_steps"] > before["agent_steps"]
    again = arena("launch", "--resume", "--run-dir", run_dir)
    assert "is finished, and a limit holds still" in again.stderr
    assert "networks of" not in again.stderr
    _check_last_lines(again.stderr, run_dir)
    # Raising another limit has no effect: the message names the limit that ended the run.
    in_vain = arena("launch", "--resume", "--run-dir", run_dir, "stop.agent_steps=1e9")
    assert "finished: stop.agent_steps_per_policy: every" in in_vain.stderr


def _check_last_lines(error: str, run: Path) -> None:
    """Why it ended, that all is saved, how to go on, the champion and what next."""
    lines = error.splitlines()
    begin = max(at for at, line in enumerate(lines) if line.startswith("finished: "))
    reason, saved, resume, champion, score, *following = lines[begin:]
    assert reason.startswith("finished: stop.agent_steps_per_policy: every active policy has done")
    assert saved == f"everything is saved in {run}; to go on:"
    assert resume == (f"  arena launch --resume --run-dir {run} stop.agent_steps_per_policy=12000")
    assert re.fullmatch(
        r"champion: player/p\d{3}(@\d{12})?, rating -?\d+ \[-?\d+, -?\d+\]", champion
    )
    assert re.fullmatch(r"  0\.\d{3} against bot:random, 95% .*, in [\d,]+ matches", score)
    # A run this short may have no champion worth exporting.
    with closing(Inspection.open(run)) as inspection:
        unproven = unproven_champions(inspection)
    if unproven:
        assert following[0].startswith("nobody is surely better than untrained: ")
        assert "arena export" not in " ".join(following)
    else:
        assert following == [f"next: arena export {run}"]


@pytest.mark.slow
def test_other_packages_than_recorded_are_warned_of(
    arena: Command,
    arena_json: Callable[..., dict[str, Any]],
    finished_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    recorded = importlib.metadata.version("numpy")
    # The version is read from the first directory of packages that has it.
    installed = tmp_path / "packages" / "numpy-1.0.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0.0\n")
    monkeypatch.setenv("PYTHONPATH", str(installed.parent))
    done = arena("launch", "--resume", "--run-dir", run)
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert f"run.yaml records numpy {recorded} (here 1.0.0)" in warning
    assert f"pip install numpy=={recorded}" in warning
    events = arena_json("league", run, "events")["events"]
    (event,) = [event for event in events if event["kind"] == "versions_differ"]
    assert event["numpy"] == [recorded, "1.0.0"]


def _damage_a_current_checkpoint(arena_json: Callable[..., dict[str, Any]], run: Path) -> str:
    """Flip a bit in the newest checkpoint of a policy that has an older one; its id."""
    rows = arena_json("league", run, "checkpoints")["checkpoints"]
    present = [row for row in rows if row["state"] == "present"]
    policies = [row["policy"] for row in present]
    policy = max(policies, key=policies.count)
    newest = max(
        (row for row in present if row["policy"] == policy), key=lambda row: row["agent_steps"]
    )
    weights = run / newest["key"] / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.unlink()  # a ghost may share the file: its own link keeps the right bytes
    weights.write_bytes(data)
    return str(policy)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["connect_for"], "connect_four"),
        (["tictactoe", "populations.player.sise=3"], "populations.player.size"),
        (["tictactoe", "seed=yes please"], "seed"),
        (["tictactoe", "environment.id=classic/tictactoo-v3"], "classic/tictactoe-v3"),
        (["tictactoe", "populations.player.agents=[player_1]"], "player_2"),
        (["tictactoe", "populations.player.search_space={learning_rat: {low: 1, high: 2}}"],
         "learning_rate"),
        (["tictactoe", "environment.outcome={threshold: 1, side: playr_1}"], "player_1"),
        (["tictactoe", "deterministic=true", "stop.duration_s=5"], "stop.duration_s"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_bad_input_is_refused_before_anything_is_created(
    arena: Command, run_dir: Path, arguments: list[str], said: str
) -> None:
    refused = arena("launch", *arguments, "--run-dir", run_dir, code=2)
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not run_dir.exists()


def decisions(arena_json: Callable[..., dict[str, Any]], run: Path) -> list[dict[str, Any]]:
    """What was decided, without who did it and when."""
    kinds = ("exploited", "explored", "ghost_created", "quarantined")
    events = arena_json("league", run, "events")["events"]
    return [
        {key: value for key, value in event.items() if key not in ("sequence", "time")}
        for event in events
        if event["kind"] in kinds
    ]


ASSETS = Path(__file__).parent.parent / "assets"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("hooks={on_end: [hooked:gone]}", "hooks.on_end[0]: hooked:gone: hooked has no 'gone'"),
        ("hooks={on_end: [[no-such-command]]}", "there is no command 'no-such-command'"),
    ],
)
def test_what_cannot_be_called_is_refused_at_launch(
    arena: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    override: str,
    said: str,
) -> None:
    monkeypatch.chdir(ASSETS)
    done = arena(*launch_arguments(tmp_path / "run", override), code=2)
    assert said in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_end_of_a_run_says_what_it_waits_for_and_for_how_long(
    arena: Command, tmp_path: Path
) -> None:
    more = (
        "stop.agent_steps_per_policy=1000",
        "populations.player.size=1",
        "hooks={on_end: [[sleep, 3]], time_limit_s: 30}",
    )
    done = arena(*launch_arguments(tmp_path / "run", *more))
    waits = [line for line in done.stderr.splitlines() if "waiting for" in line]
    # Two calls may still take 30 s each; at least one of these 60 s has passed, at most ten.
    assert len(waits) == 1
    said = re.fullmatch(
        r"all is saved; waiting for hooks, for at most (\d+) s \(logs/hooks\.log\)", waits[0]
    )
    assert said is not None
    assert 50 <= int(said.group(1)) <= 59


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_champions_and_checkpoints_are_exported_by_themselves(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # The line is the one that the documents show.
    hook = '[[arena, export, "{run}", --player, "{player}", --to, "{run}/champions/{sequence}"]]'
    more = (
        "stop.agent_steps_per_policy=3000",
        "populations.player.size=2",
        "checkpoints.export_every_agent_steps=1000",
        "checkpoints.keep=1",
        "checkpoints.keep_exports=1",
        f"hooks={{on_champion: {hook}, time_limit_s: 30}}",
    )
    arena(*launch_arguments(run, *more), timeout_s=300.0)
    events = arena_json("league", run, "events")["events"]
    due = [event for event in events if event["kind"] == "export_due"]
    assert {event["subject"] for event in due} == {"player/p000", "player/p001"}
    assert len(due) > 3
    newest = {event["subject"]: event for event in due}
    for policy, event in newest.items():
        assert [path.name for path in (run / "exports" / policy).iterdir()] == [
            f"{event['agent_steps']:012d}"
        ]
        card = json.loads((run / "exports" / event["to"] / "card.json").read_text())
        assert (card["agent_steps"], card["record"]) == (event["agent_steps"], [])
    changes = [event for event in events if event["kind"] == "champion"]
    assert changes
    exported = sorted(int(path.name) for path in (run / "champions").iterdir())
    # On a busy machine some exports are missing: with one kept checkpoint an earlier champion's may
    # be removed before its export, and after the run calls have a limited time.
    assert exported
    weights = {event["sequence"]: event["weights"] for event in changes}
    for sequence in exported:
        card = json.loads((run / "champions" / str(sequence) / "card.json").read_text())
        assert card["weights_digest"] == weights[sequence]
    assert not [event for event in events if event["kind"] == "alert" and "export" in event["what"]]
