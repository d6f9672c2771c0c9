"""The Nash mixture of a run, as a champion that is exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..players.weights import MixtureWeights
from .card import Cards
from .record import Export, play_record

if TYPE_CHECKING:
    import torch

    from arena.export.card import Card, MixtureCard
    from arena.export.write import Written
    from populations.league.mixture import Mixture
    from populations.league.standings import Standing
    from populations.views.questions.inspection import Inspection

    from ..terminal.progress import PlayProgress


def find_mixtures(inspection: Inspection) -> dict[str, Mixture]:
    """Find the Nash mixture of each population, of players whose weights are there.

    Raises:
        ConfigError: As `populations.league.mixture.nash_mixtures`.
    """
    return inspection.mixtures(partial(is_present, inspection))


def is_present(inspection: Inspection, line: Standing) -> bool:
    """Return whether a player's weights are in the run's directory."""
    from arena.checkpoints.manifest import MANIFEST

    # Ghosts stay, but retention removes checkpoints of policies. The row is checked first: a
    # directory that is marked for deletion may still exist, and be removed during the export.
    return inspection.is_kept(line) and (inspection.run_dir / str(line.key) / MANIFEST).is_file()


def export_mixture(export: Export, mixture: Mixture, *, target: Path) -> Written[MixtureCard]:
    """Write a mixture with its members, cards and record.

    Args:
        export: The export.
        mixture: Mixture of one of the run's populations.
        target: Directory to write.
    """
    from arena.export.card import AnyCard, CardMember, MixtureCard
    from arena.export.write import write_mixture

    shared = Cards.of(export.inspection, export.game)
    members = []
    for line, _ in mixture.members:
        # All weights are loaded before matches begin.
        player, reference = line.player, line.reference
        assert reference is not None, "`find_mixtures` has left these out"
        members.append(shared.load(player, reference, population=mixture.population))
    weights = MixtureWeights(
        player=f"{mixture.population}/mixture",
        agents=members[0][1].agents,
        members=tuple(policy for policy, _ in members),
        probabilities=tuple(probability for _, probability in mixture.members),
    )
    record = play_record(
        export,
        weights,
        population=mixture.population,
        # Probabilities are for policies that sample: greedy members play another game's
        # equilibrium.
        num_matches={"sampled": export.settings.num_matches},
    )
    cards = [card for _, card in members]
    # Members share a population, so the agents and the environment are equal.
    shared_keys = {*AnyCard.__struct_fields__} - {"schema_version"}
    ratings = export.inspection.tables.ratings.get(mixture.population)
    card = MixtureCard(
        **{name: getattr(cards[0], name) for name in shared_keys}
        | {
            "player": weights.player,
            "record": record,
            "exploitability": export.measured(weights),
        },
        members=tuple(
            CardMember(
                directory=f"members/{index:02d}",
                player=card.player,
                probability=probability,
                agent_steps=card.agent_steps,
                generation=card.generation,
                weights_digest=card.weights_digest,
                rating=card.rating,
            )
            for index, ((_, probability), card) in enumerate(
                zip(mixture.members, cards, strict=True)
            )
        ),
        num_players=mixture.num_players,
        worst_score=mixture.worst_score,
        cyclicity=None if ratings is None else ratings.cyclicity,
    )
    return write_mixture(
        target,
        card=card,
        members=_announced(weights, cards, progress=export.progress),
        force=export.settings.force,
    )


def _announced(
    weights: MixtureWeights, cards: list[Card], *, progress: PlayProgress
) -> Iterator[tuple[Card, Mapping[str, torch.Tensor]]]:
    """Yield members one after the other, as they are written."""
    for card, policy in zip(cards, weights.members, strict=True):
        # The generator is lazy, so that progress names the member whose graph is being verified.
        progress.begin(f"{card.player}: writing and verifying the graph")
        yield card, policy.tensors
