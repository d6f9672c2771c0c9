"""Carries out an Evaluate assignment: frozen players play matches to their ends.

Tests: `tests/arena/learners/work/test_worker.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from arena.envs.random_play import action_layouts
from arena.games.recording import GameRecorder
from arena.learners.work.faults import AssignmentFault
from arena.learners.work.players import Equipment
from arena.matches import openings
from arena.matches.match import Block, Share, Stopped, play_matches, share_envs
from arena.matches.seating import num_episodes, plays_of
from arena.matches.seeds import environment_seeds, seed_everything
from arena.matches.tally import merge_tallies
from arena.spaces import ActionLayout
from arena.types import Seat, Seating, Tally
from arena.wire.messages import Evaluate, Finished


def evaluate(message: Evaluate, equipment: Equipment) -> Finished:
    """Carry out an Evaluate assignment: exactly the requested matches of each pairing.

    Raises:
        AssignmentFault: If a checkpoint cannot be used, or the learner was told to stop.
        EnvironmentFault: If an environment broke its contract.
        ConfigError: If a bot cannot be made or breaks the rules.
    """
    started = time.perf_counter()
    if equipment.should_stop():
        raise AssignmentFault("stopped", "told to stop before the start")
    generator = seed_everything(message.seed, device=equipment.device)
    setup, env = equipment.setup, equipment.environments.matches()
    num_matches = [pairing.num_matches for pairing in message.pairings]
    agents = {seat.population: seat.agents for seat in setup.seats}
    actions = action_layouts(setup.spec, populations=agents)
    # First decisions are not counted with random openings, which do not show a player's choice.
    radices = {} if setup.match_openings.share else _radices(actions)
    tallies: list[Tally] = []
    recorder = GameRecorder(message.games)
    # Where pairings outnumber environments, they are played in waves.
    for wave, shares in enumerate(share_envs(num_matches, num_envs=env.num_envs)):
        blocks = [
            _block(message.pairings[share.pairing].seating, share=share, equipment=equipment)
            for share in shares
        ]
        sizes = [(share.pairing, share.num_envs) for share in shares]
        recorder.choose(sizes, num_plays=len(plays_of(setup.seats)))
        try:
            tallies += play_matches(
                env,
                blocks=blocks,
                seats=setup.seats,
                sides=setup.sides,
                # Each wave has its own seeds; equal ones would begin the same episodes again.
                seeds=environment_seeds(message.seed, num_envs=env.num_envs, wave=wave),
                generator=generator,
                progress=equipment.progress,
                should_stop=equipment.should_stop,
                radices=radices,
                recorder=recorder,
                openings=setup.match_openings,
                actions=actions,
            )
        except Stopped as stopped:
            raise AssignmentFault("stopped", str(stopped)) from stopped
    left_out = {"episode/games_left_out": float(recorder.num_left_out)}
    # Pairings with equal seatings may be in several waves, but a message has one tally of each.
    merged = openings.bounded(merge_tallies(tallies))
    duration_s = time.perf_counter() - started
    return Finished(
        assignment_id=message.assignment_id,
        attempt=message.attempt,
        checkpoints=(),
        tallies=merged,
        metrics={
            **_metrics(merged, seats=setup.seats, duration_s=duration_s),
            **(left_out if recorder.num_left_out else {}),
        },
        duration_s=duration_s,
        games=tuple(recorder.games),
    )


def _radices(actions: Mapping[str, ActionLayout]) -> dict[str, tuple[int, ...] | None]:
    """Return the place value of each choice in an action's index, by population."""
    return {
        name: openings.radices(layout.branches, has_numbers=bool(layout.num_continuous))
        for name, layout in actions.items()
    }


def _block(seating: Seating, *, share: Share, equipment: Equipment) -> Block:
    return Block(
        entrants=seating.entrants({}),
        actors=tuple(
            equipment.players.frozen(
                player, population=seat.population, greedy=equipment.setup.greedy_matches
            )
            for seat, player in zip(equipment.setup.seats, seating.players, strict=True)
        ),
        num_envs=share.num_envs,
        num_matches=share.num_matches,
        players=tuple(player.player for player in seating.players),
    )


def _metrics(
    tallies: tuple[Tally, ...], *, seats: tuple[Seat, ...], duration_s: float
) -> dict[str, float]:
    matches = sum(tally.matches for tally in tallies)
    metrics = {"episode/count": float(matches), "time/play_s": duration_s}
    if matches:
        length = sum(tally.length_sum for tally in tallies)
        episodes = sum(num_episodes(tally, seats=seats) for tally in tallies)
        metrics["episode/length_mean"] = length / episodes
        metrics["throughput/matches_per_s"] = matches / duration_s
    return metrics
