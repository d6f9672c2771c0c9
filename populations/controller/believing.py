"""Whether what a learner says it has done can be what it was asked to do.

A learner is trusted to play honestly, not to be free of faults: nothing that it sends may bring the
controller down, or count for somebody who did not play.
"""

from __future__ import annotations

from collections.abc import Mapping

from arena.checkpoints.manifest import Manifest, checkpoint_key
from arena.matches.pair_scores import adds_up
from arena.types import Entrant, Player, PolicyId, Seat, Seating, Tally, is_bot, trainee_entrant
from arena.wire.messages import Evaluate, Finished, Published, Train, Trainee


def problem(
    message: Train | Evaluate,
    finished: Finished,
    *,
    manifests: Mapping[str, Manifest],
    seats: tuple[Seat, ...],
) -> str | None:
    """Why a result does not fit its assignment; None if it does.

    Args:
        message: The assignment.
        finished: What the learner says.
        manifests: Of the checkpoints that it names, by key; verified.
        seats: The environment's.
    """
    trainees = message.trainees if isinstance(message, Train) else ()
    expected = sorted(trainee.policy for trainee in trainees)
    named = sorted(published.policy for published in finished.checkpoints)
    if named != expected:
        return f"it has checkpoints of {named}, not of {expected}"
    for trainee, published in published_by(message, finished):
        fault = _checkpoint_problem(trainee, published, manifests[published.checkpoint.key])
        if fault is not None:
            return fault
    entrants = entrants_of(message)
    for tally in finished.tallies:
        if tally.entrants not in entrants:
            return f"a tally names {tally.entrants}, who did not play"
        if not _adds_up(tally, num_seats=len(seats)):
            return f"the tally of {tally.entrants} does not add up"
    for held in finished.in_flight:
        if held.entrants not in entrants or held.num_envs < 1:
            return f"{held.num_envs} episodes in flight are of {held.entrants}, who do not play"
    if len({held.entrants for held in finished.in_flight}) < len(finished.in_flight):
        return "it names the same episodes in flight twice"
    return None


def published_by(message: Train | Evaluate, finished: Finished) -> list[tuple[Trainee, Published]]:
    """Each trainee with the checkpoint that it has published."""
    if not isinstance(message, Train):
        return []
    by_policy = {published.policy: published for published in finished.checkpoints}
    return [(trainee, by_policy[trainee.policy]) for trainee in message.trainees]


def _checkpoint_problem(trainee: Trainee, published: Published, manifest: Manifest) -> str | None:
    key = published.checkpoint.key
    facts = (manifest.policy, manifest.generation)
    if facts != (trainee.policy, trainee.generation):
        return f"the checkpoint {key} says it is {facts}"
    steps, updates = manifest.agent_steps, manifest.learner_updates
    if steps < trainee.agent_steps or updates < trainee.learner_updates:
        return f"the counters of {key} fell"
    if key != checkpoint_key(manifest.policy, agent_steps=steps, digest=manifest.digest):
        return f"the checkpoint {key} is not where it belongs"
    return None


def entrants_of(message: Train | Evaluate) -> dict[tuple[Entrant, ...], Seating]:
    """Return the entrants that the tallies of an assignment may name, each with its seating."""
    if isinstance(message, Evaluate):
        seatings = [pairing.seating for pairing in message.pairings]
        generations: dict[str, int] = {}
    else:
        seatings = [*message.opponents, *message.carried]
        generations = {trainee.policy: trainee.generation for trainee in message.trainees}
    return {
        tuple(_entrant(player, generations) for player in seating.players): seating
        for seating in seatings
    }


def _entrant(player: Player, generations: Mapping[str, int]) -> Entrant:
    if player.weights is not None:
        return Entrant(player.weights.digest)
    if is_bot(player.player):
        return Entrant(player.player)
    policy = PolicyId(player.player)
    return trainee_entrant(policy, generation=generations.get(policy, 0))


def _adds_up(tally: Tally, *, num_seats: int) -> bool:
    """Whether a tally has a return for every seat, and each pair's results are its matches."""
    per_seat = (len(tally.entrants), len(tally.return_sum), len(tally.return_sum_of_squares))
    return (
        tally.matches > 0
        and (tally.distinct is None or 1 <= tally.distinct <= tally.matches)
        and per_seat == (num_seats, num_seats, num_seats)
        and all(
            0 <= pair.first < pair.second < num_seats and adds_up(pair, matches=tally.matches)
            for pair in tally.pairs
        )
    )
