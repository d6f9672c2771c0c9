"""Are kept games played again exactly, chance included, and is one that is not refused by name?

    python -m experiments.leagues.played_again
    python -m experiments.leagues.played_again --games 20 --only chess othello

Of each environment a learner's worker plays evaluations between an untrained network and uniformly
random moves, the controller's rules keep what it reports, and a journal holds it. Another process
reads that journal and plays each game again, as `arena replay` does. Users' environments are those
of ``tests/assets``; one of them does not follow its seed, so all of its games must part.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from msgspec.structs import replace

from arena.checkpoints.files import read_manifest
from arena.config import LearnerSetup
from arena.environment_spec import EnvironmentRequest
from arena.envs.base import Phase
from arena.envs.inspect import inspect_environment
from arena.envs.phase import players_of_agents
from arena.games.recording import GameParted, replay
from arena.learners.loop import NoProgress
from arena.learners.work.worker import Worker
from arena.matches.seating import seat_teams
from arena.types import (
    MAX_GAME_BYTES,
    RANDOM_BOT,
    SHOWN_BYTES,
    AssignmentId,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    WeightsRef,
)
from arena.wire.messages import Evaluate, Finished, Pairing, Train, Trainee
from experiments.harness import parser_of, say
from populations.config.run_config import RunConfig, validate_config
from populations.config.run_file import RunFile, content_digest, learner_setup, new_run_file
from populations.config.trust import word_for_run
from populations.controller.evaluation.games import take
from populations.controller.state.events import Now
from populations.controller.state.state import make_state
from populations.records.aggregates import Row
from populations.records.rows import AssignmentRow
from populations.simulation.world import make_tables
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal, JournalReader
from tools.players.game import Game

USERS = Path(__file__).parents[2] / "tests" / "assets"
MATCHES = 2
"""Matches of each of the four pairings of an evaluation, each in an environment of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Environment whose games are played.

    Attributes:
        id: ``environment.id``.
        kwargs: Arguments of its factory.
        environment: Further keys of the section.
        has_networks: Whether a network plays; it is slow where much is shown.
    """

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    has_networks: bool = True


PETTINGZOO = {"backend": "pettingzoo"}
TEAM = {"sides": {"team": ["*"]}}

CASES: Mapping[str, Case] = MappingProxyType(
    {
        "connect_four": Case(id="classic/connect_four-v3"),
        "connect_four-pettingzoo": Case(id="classic/connect_four-v3", environment=PETTINGZOO),
        "tictactoe": Case(id="classic/tictactoe-v3"),
        "kuhn_poker": Case(id="openspiel:kuhn_poker"),
        "leduc_poker": Case(id="openspiel:leduc_poker"),
        "rock_paper_scissors": Case(id="classic/rps-v2"),
        "simple_spread": Case(id="mpe2/simple_spread_v3", environment=TEAM),
        "simple_tag": Case(id="mpe2/simple_tag_v3"),
        "pistonball": Case(
            id="butterfly/pistonball-v6",
            # Without a render mode its pictures never change.
            kwargs={"n_pistons": 5, "max_cycles": 40, "render_mode": "rgb_array"},
            environment=TEAM,
            has_networks=False,
        ),
        "chess": Case(id="classic/chess-v6", has_networks=False),
        "othello": Case(id="openspiel:othello"),
        "three_sides": Case(id="three_sides:Guess"),
        "births": Case(id="unruly:Grass", environment=TEAM),
        "too_long": Case(
            id="classic/rps-v2",
            # Digests of its turns alone have more than 64 KiB.
            kwargs={"max_cycles": MAX_GAME_BYTES // SHOWN_BYTES},
            has_networks=False,
        ),
        "unseeded": Case(id="mistakes:AtOnce", kwargs={"mistakes": ["unseeded"]}),
    }
)
"""``three_sides`` and ``births`` draw chance both at the reset and at each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Games of a run that were played again.

    Attributes:
        games: Number of games.
        steps: Steps of all.
        longest_steps: Steps of the longest.
        most_bytes: Bytes of the largest.
        exact: Games that were played again exactly.
        parted: Games that parted.
        reason: Reason for which the first of these was refused.
        seconds: Time that it took.
    """

    games: int
    steps: int
    longest_steps: int
    most_bytes: int
    exact: int
    parted: int
    reason: str
    seconds: float


def keep_games(case: Case, run: Path, *, number: int) -> int:
    """Play evaluations and keep their games in a run's journal.

    Args:
        case: Environment.
        run: Directory of the run, which is made.
        number: Games to keep, or a few more.

    Returns:
        Number of games that were left out as too long.
    """
    # As learners have it: products of policies are too small for threads.
    torch.set_num_threads(1)
    run.mkdir(parents=True)
    run_file = _run_file(case, number=number)
    run_file.save(run / "run.yaml")
    setup = learner_setup(run_file, root=run)
    tables = make_tables(run_file)
    tables.run = replace(tables.run, configuration=content_digest(run / "run.yaml"))
    rows: list[Row] = [tables.run, *tables.policies.values(), *tables.generations.values()]
    left_out = 0
    worker = Worker(setup, progress=NoProgress(), should_stop=lambda: False)
    with closing(worker), Journal.create(run / JOURNAL, rows) as journal:
        state = make_state(run_file.config, setup, tables)
        networks = _networks(worker, setup, run_file.config) if case.has_networks else {}
        for assignment in range(1, 10 * number):
            message = Evaluate(
                assignment_id=AssignmentId(assignment),
                attempt=1,
                pairings=tuple(_pairings(setup, networks)),
                seed=assignment,
                games=8,
            )
            finished = worker.carry_out(message)
            if not isinstance(finished, Finished):
                raise RuntimeError(finished.reason)
            left_out += int(finished.metrics.get("episode/games_left_out", 0))
            tx = state.begin(Now(monotonic_s=0.0, utc="2026-11-28T12:00:00.000+00:00"))
            row = AssignmentRow(
                assignment_id=message.assignment_id, kind="evaluate", message=message, metrics={}
            )
            take(state, tx, row, finished.games)
            journal.commit(tx.rows)
            if len(state.tables.games) + left_out >= number:
                return left_out
    raise RuntimeError(f"{case.id} has kept {len(state.tables.games)} games only")


def _run_file(case: Case, *, number: int) -> RunFile:
    spec = inspect_environment(
        EnvironmentRequest(
            case.id,
            kwargs=dict(case.kwargs),
            launch_directory=str(USERS),
            possible_agents=None,
        )
    )
    config = validate_config(
        {
            "environment": {
                "id": case.id,
                "kwargs": dict(case.kwargs),
                "num_envs": 4 * MATCHES,
                **case.environment,
            },
            # None of them goes.
            "replays": {"keep": 2 * number + 8},
            "device": "cpu",
        }
    )
    return new_run_file(config, spec, name="kept", launch_directory=str(USERS))


def _networks(worker: Worker, setup: LearnerSetup, config: RunConfig) -> dict[str, Player]:
    """Publish an untrained network of each population."""
    found = {}
    for name in setup.populations:
        policy = PolicyId(f"{name}/p000")
        message = Train(
            assignment_id=AssignmentId(10**6),
            attempt=1,
            trainees=(
                Trainee(
                    policy=policy,
                    generation=0,
                    agent_steps=0,
                    learner_updates=0,
                    checkpoint=None,
                    hyperparameters=dict(config.populations[name].start_values),
                ),
            ),
            opponents=(),
            agent_steps=0,
            seed=1,
            may_stop_early=False,
        )
        finished = worker.carry_out(message)
        if not isinstance(finished, Finished):
            raise RuntimeError(finished.reason)
        key = finished.checkpoints[0].checkpoint.key
        digest = read_manifest(Path(setup.root) / key).weights_digest
        weights = WeightsRef(digest=digest, key=key)
        found[name] = Player(player=PlayerId(policy), weights=weights)
    return found


def _pairings(setup: LearnerSetup, networks: Mapping[str, Player]) -> Iterator[Pairing]:
    """Let networks and random moves meet, each in each place."""
    bot = Player(player=PlayerId(RANDOM_BOT), weights=None)
    teams = seat_teams(setup.seats)
    for first, others in ((True, True), (True, False), (False, True), (False, False)):
        players = (
            networks.get(seat.population, bot) if (first if team == teams[0] else others) else bot
            for seat, team in zip(setup.seats, teams, strict=True)
        )
        yield Pairing(seating=Seating(players=tuple(players)), num_matches=MATCHES)


def played_again(run: Path) -> Again:
    """Play all games of a run again, each step checked."""
    began_s = time.perf_counter()
    with JournalReader(run / JOURNAL) as reader:
        rows = list(reader.load().games.values())
    run_file = RunFile.load(run / "run.yaml")
    word = word_for_run(run_file, run, trust=True)
    game = Game.of_setup(learner_setup(run_file, root=run), word=word)
    reasons = []
    with closing(game.make_env(1)) as env:
        for row in rows:
            players = players_of_agents([game.seats[seat] for seat in row.seats], row.players)
            phase = Phase(name="evaluation", agent_steps=None, players=players)
            try:
                for _ in replay(env, row, phase=phase):
                    pass
            except GameParted as error:
                reasons.append(str(error))
    return Again(
        games=len(rows),
        steps=sum(row.steps for row in rows),
        longest_steps=max((row.steps for row in rows), default=0),
        most_bytes=max((row.size_bytes for row in rows), default=0),
        exact=len(rows) - len(reasons),
        parted=len(reasons),
        reason=reasons[0] if reasons else "",
        seconds=round(time.perf_counter() - began_s, 1),
    )


def measured(case: Case, run: Path, *, number: int) -> dict[str, Any]:
    """Keep games here, and play them again in another process."""
    began_s = time.perf_counter()
    left_out = keep_games(case, run, number=number)
    kept_s = round(time.perf_counter() - began_s, 1)
    command = [sys.executable, "-m", "experiments.leagues.played_again", "--again", str(run)]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {**json.loads(text), "left_out": left_out, "played_s": kept_s}


def main() -> None:
    """Read the arguments and print a line of each environment."""
    parser = parser_of(__doc__)
    parser.add_argument("--games", type=int, default=100, help="games of each environment")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--again", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.again is not None:
        say(asdict(played_again(options.again)))
        return
    for name in options.only:
        with tempfile.TemporaryDirectory() as directory:
            figures = measured(CASES[name], Path(directory) / "run", number=options.games)
        say({"environment": name, **figures})


if __name__ == "__main__":
    main()
