from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
import torch

from arena.games.recording import GameRecorder
from arena.matches.match import Block, play_matches
from arena.types import Player, PlayerId, WeightsRef
from populations.config.run_file import learner_setup
from populations.config.trust import word_for_run
from populations.inspection.views import Inspection
from populations.records.games import played_as
from populations.records.rows import GameRow
from populations.storage.journal import Journal
from tools.players.game import Game
from tools.players.weights import load_policy


def record(run: Path, pairings: Sequence[tuple[str, str]], *, each: int = 2) -> None:
    """Let players of a run meet, and keep their games as its controller would."""
    with closing(Inspection.open(run)) as inspection:
        setup = learner_setup(inspection.run_file, root=run)
        word = word_for_run(inspection.run_file, run, trust=False)
        game = Game.of_setup(setup, word=word)
        rows = {str(row.policy): row for row in inspection.tables.checkpoints.values()}
        kept: list[GameRow] = []
        for number, names in enumerate(pairings, start=1):
            players = [
                Player(
                    player=PlayerId(name),
                    weights=WeightsRef(digest=rows[name].weights_digest, key=rows[name].key)
                    if name in rows
                    else None,
                )
                for name in names
            ]
            actors = []
            for seat, player in zip(game.seats, players, strict=True):
                if player.weights is None:
                    actors.append(game.make_bots(player.player)[seat.population])
                    continue
                weights = load_policy(inspection, player.player, player.weights, word=game.word)[1]
                actors.append(weights.make_actor(game, greedy=False))
            recorder = GameRecorder(dict.fromkeys(range(each), 0))
            block = Block(
                entrants=tuple(player.entrant for player in players),
                actors=tuple(actors),
                num_envs=each,
                num_matches=1,
            )
            with closing(game.make_env(each)) as env:
                play_matches(
                    env,
                    blocks=[block],
                    seats=game.seats,
                    sides=game.sides,
                    seeds=range(10 * number, 10 * number + each),
                    generator=torch.Generator().manual_seed(number),
                    recorder=recorder,
                )
            kept += [
                GameRow(
                    game=f"{number}.{place}",
                    time=f"2026-11-28T12:00:{number:02d}.000+00:00",
                    seats=one.seats,
                    players=tuple(
                        played_as(players[seat], inspection.league.checkpoints)
                        for seat in one.seats
                    ),
                    entrants=tuple(players[seat].entrant for seat in one.seats),
                    keys=tuple(
                        "" if (ref := players[seat].weights) is None else ref.key
                        for seat in one.seats
                    ),
                    seed=one.seed,
                    steps=one.steps,
                    points=one.points,
                    returns=one.returns,
                    actions=one.actions,
                    shown=one.shown,
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
