from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.types import Player, PlayerId
from populations.config.run_file import learner_setup
from populations.config.trust import word_for_run
from populations.records.games import played_as
from populations.records.rows import GameRow
from populations.storage.journal import Journal
from populations.views.questions.inspection import Inspection
from tests.recorded_games import play, row_of
from tools.players.game import Game
from tools.players.weights import load_policy


def record(run: Path, pairings: Sequence[tuple[str, str]], *, each: int = 2) -> None:
    """Let players of a run meet, and keep their games as its controller would."""
    kept: list[GameRow] = []
    with closing(Inspection.open(run)) as inspection:
        setup = learner_setup(inspection.run_file, root=run)
        word = word_for_run(inspection.run_file, run, trust=False)
        game = Game.of_setup(setup, word=word)
        rows = {str(row.policy): row for row in inspection.tables.checkpoints.values()}
        for number, names in enumerate(pairings, start=1):
            players, actors = [], []
            for seat, name in zip(game.seats, names, strict=True):
                weights = rows[name].weights if name in rows else None
                players.append(Player(player=PlayerId(name), weights=weights))
                if weights is None:
                    actors.append(game.make_bots(name)[seat.population])
                    continue
                policy = load_policy(inspection, name, weights, word=game.word)[1]
                actors.append(policy.make_actor(game, greedy=False))
            recorder, _ = play(
                game,
                num_envs=each,
                players=players,
                actors=actors,
                first_seed=10 * number,
                seed=number,
            )
            named = [
                replace(one, player=played_as(one, inspection.league.checkpoints))
                for one in players
            ]
            kept += [
                replace(
                    row_of(f"{number}.{place}", one, [named[seat] for seat in one.seats]),
                    time=f"2026-11-28T12:00:{number:02d}.000+00:00",
                )
                for place, one in enumerate(recorder.games)
            ]
    with closing(Journal.open(run / "journal.db")) as journal:
        journal.commit(kept)


@pytest.fixture(scope="session")
def kept_run(board_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Connect Four, with games of p000 (its champion), p001 and random play."""
    run = tmp_path_factory.mktemp("runs") / "kept"
    shutil.copytree(board_run, run)
    pairings = [
        ("player/p000", "player/p001"),
        ("player/p001", "player/p000"),
        ("bot:random", "player/p000"),
        ("player/p001", "bot:random"),
    ]
    record(run, pairings, each=3)
    return run
