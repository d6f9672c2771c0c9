"""The Nash mixture of a run, as a champion that is exported; and when ratings need one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ._card import make_card
from ._players import MixtureWeights, PolicyWeights, load_policy
from ._record import play_record
from .rate import CYCLIC

if TYPE_CHECKING:
    import torch

    from arena.export.card import Card, CardMember, MixtureCard
    from arena.export.write import WrittenMixture
    from populations.inspection.views import Inspection
    from populations.league.mixture import Mixture
    from populations.league.standings import Standing
    from populations.records.rows import Json

    from ._exploitability import Exploitability
    from ._game import Game
    from ._progress import PlayProgress


def cyclic_warnings(cyclicity: Mapping[str, float | None], *, run: Path) -> Iterator[str]:
    """A line for each population that ratings order badly.

    Args:
        cyclicity: By population; None: unknown.
        run: The run's directory.
    """
    for population, share in cyclicity.items():
        if share is not None and share > CYCLIC:
            yield (
                f"Warning: cyclicity of {population} is {share:.2f}, above {CYCLIC}: ratings order "
                "its players badly, because who meets whom matters more; "
                f"arena export {run} --mixture exports a mixture that none of them beats"
            )


def misfit_warnings(fits: Mapping[str, Mapping[str, Json]], *, run: Path) -> Iterator[str]:
    """A line for each population whose results are not what its ratings promise.

    Args:
        fits: As `populations.inspection.views.fits` gives it.
        run: The run's directory.
    """
    from populations.ratings.fitting.components import MISFIT

    for population, fit in fits.items():
        misfit, deviation = float(str(fit["misfit"])), float(str(fit["pair_deviation"]))
        if misfit >= MISFIT:
            yield (
                f"Warning: results of {population} are {deviation:.0f} Elo a pair off its ratings "
                f"({misfit:.1f} standard deviations); intervals are widened by it; "
                f"arena league {run} calibration shows where"
            )


def find_mixtures(inspection: Inspection) -> dict[str, Mixture]:
    """The Nash mixture of every population of a run, of players whose weights are there.

    Raises:
        ConfigError: As `populations.league.mixture.nash_mixtures`.
    """
    from populations.league.mixture import nash_mixtures

    present = {
        name: [line for line in lines if _is_present(inspection, line)]
        for name, lines in inspection.standings().items()
    }
    pairs = inspection.reader.pairs(kind="evaluate")
    return nash_mixtures(present, pairs, seats=inspection.league.seats)


def _is_present(inspection: Inspection, line: Standing) -> bool:
    from arena.checkpoints.manifest import MANIFEST

    if line.key is None:
        return False
    checkpoint = inspection.tables.checkpoints.get(line.key)
    if checkpoint is not None and checkpoint.state != "present":
        return False
    return (inspection.run_dir / line.key / MANIFEST).is_file()


def export_mixture(
    inspection: Inspection,
    mixture: Mixture,
    *,
    game: Game,
    target: Path,
    num_matches: int,
    seed: int,
    force: bool,
    progress: PlayProgress,
    measure: Exploitability,
) -> WrittenMixture:
    """Write a mixture with its members, cards and record.

    Args:
        inspection: The run.
        mixture: Of one of its populations.
        game: The run's.
        target: Where.
        num_matches: Of the record, per opponent and seat.
        seed: Of the record.
        force: Replace an export that is there.
        progress: Told of every step.
        measure: How exploitable it is.
    """
    from arena.export.write import write_mixture

    members = [
        _member(inspection, line.standing, game=game, population=mixture.population)
        for line in mixture.members
    ]
    weights = MixtureWeights(
        player=f"{mixture.population}/mixture",
        agents=members[0][1].agents,
        members=tuple(policy for policy, _ in members),
        probabilities=tuple(line.probability for line in mixture.members),
    )
    record = play_record(
        inspection,
        game,
        weights,
        population=mixture.population,
        num_matches={"sampled": num_matches},
        seed=seed,
        progress=progress,
    )
    cards = [card for _, card in members]
    card = _mixture_card(mixture, cards, player=weights.player, inspection=inspection)
    return write_mixture(
        target,
        card=card.model_copy(update={"record": record, "exploitability": measure.of(weights)}),
        members=_announced(weights, cards, progress=progress),
        force=force,
    )


def _announced(
    weights: MixtureWeights, cards: list[Card], *, progress: PlayProgress
) -> Iterator[tuple[Card, Mapping[str, torch.Tensor]]]:
    """Members one after the other, as they are written."""
    for card, policy in zip(cards, weights.members, strict=True):
        progress.begin(f"{card.player}: writing and verifying the graph")
        yield card, policy.tensors


def _member(
    inspection: Inspection, line: Standing, *, game: Game, population: str
) -> tuple[PolicyWeights, Card]:
    from arena.types import WeightsRef

    if line.weights is None or line.key is None:
        raise ValueError(f"{line.player} has no weights")
    reference = WeightsRef(digest=line.weights, key=line.key)
    manifest, policy = load_policy(inspection.run_dir, line.player, reference)
    # The record on the mixture's card is played by all of them.
    card = make_card(inspection, policy, manifest, game=game, population=population, record=())
    return policy, card


def _mixture_card(
    mixture: Mixture, cards: list[Card], *, player: str, inspection: Inspection
) -> MixtureCard:
    from arena.export.card import MixtureCard

    first = cards[0]
    ratings = inspection.tables.ratings.get(mixture.population)
    return MixtureCard(
        created=first.created,
        run=first.run,
        population=first.population,
        player=player,
        agents=first.agents,
        seats=first.seats,
        environment=first.environment,
        observation=first.observation,
        action=first.action,
        mask=first.mask,
        record=(),
        versions=first.versions,
        members=tuple(_card_members(mixture, cards)),
        num_players=mixture.num_players,
        worst_score=mixture.worst_score,
        cyclicity=None if ratings is None else ratings.cyclicity,
    )


def _card_members(mixture: Mixture, cards: list[Card]) -> Iterator[CardMember]:
    from arena.export.card import CardMember

    for index, (member, card) in enumerate(zip(mixture.members, cards, strict=True)):
        yield CardMember(
            directory=f"members/{index:02d}",
            player=card.player,
            probability=member.probability,
            agent_steps=card.agent_steps,
            generation=card.generation,
            weights_digest=card.weights_digest,
            rating=card.rating,
        )
