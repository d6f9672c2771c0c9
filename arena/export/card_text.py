"""Text of ``card.md``: the content of ``card.json`` for people.

Tests: `tests/arena/export/test_card.py`, `tests/arena/export/test_spaces.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from arena.export.card import AnyCard, Card, CardLevel, CardRating, MixtureCard

RATED = {
    "sampled": "by matches in which policies sample their actions",
    "greedy": "by matches in which policies play their likeliest actions",
}


def card_for_people(card: Card) -> str:
    """Return the text of ``card.md``."""
    sections = [
        f"# {card.player}",
        _table(("", ""), summary(card)),
        *_levels(card),
        "## Record",
        "Opponents sample their actions.",
        _record(card),
        "## Hyperparameters",
        _hyperparameters(card),
        "## Lineage",
        _table(
            ("policy", "generation", "agent steps", "weights"),
            [
                # Twelve digits distinguish weights for people; `card.json` has all digits.
                (line.policy, line.generation, line.agent_steps, line.weights[:12])
                for line in card.lineage
            ],
        ),
        *_files(card),
        _USAGE,
    ]
    return "\n\n".join(sections)


def _levels(card: Card) -> tuple[str, ...]:
    if not card.levels:
        return ()
    return (
        "## Levels",
        "`Champion(DIR, level=3)` plays at a level: it samples its actions. Ratings are by matches "
        "of the levels, the highest having the rating above.",
        _table(
            (*("level", "player", "temperature", "rating"), "score against the one below"),
            [
                (
                    *(level.level, level.player, f"{level.temperature:.3g}"),
                    *(rating_text(level), score_text(level)),
                )
                for level in card.levels
            ],
        ),
    )


def score_text(level: CardLevel) -> str:
    """Return a level's score against the one below, and the matches that it is from."""
    score = level.score_below
    return "" if score is None else f"{score:.3f} in {level.matches_below}"


def _hyperparameters(card: Card) -> str:
    rows = [(name, _text(value)) for name, value in card.hyperparameters.items()]
    rows += [(f"{name}: factor of its schedule", f"{f:.6g}") for name, f in card.factors.items()]
    return _table(("name", "value"), rows)


def _text(value: bool | float | str) -> str:
    # str.lower also handles booleans: True becomes true.
    return f"{value:.6g}" if isinstance(value, float) else str(value).lower()


def mixture_card_for_people(card: MixtureCard) -> str:
    """Return the text of ``card.md`` of a mixture."""
    sections = [
        f"# {card.player}",
        f"A mixture of {len(card.members)} policies: at the beginning of each episode one of them "
        "is drawn, and plays it to the end.",
        _table(("", ""), [*_environment(card), *_equilibrium(card), *_origin(card)]),
        "## Members",
        "Ratings: bot:random is 0, 400 points are odds of 10 to 1. Each member is an export of its "
        "own.",
        _table(
            ("directory", "player", "probability", "rating", "agent steps", "weights"),
            [
                (
                    *(member.directory, member.player, f"{member.probability:.4f}"),
                    *(rating_text(member.rating), member.agent_steps, member.weights_digest[:12]),
                )
                for member in card.members
            ],
        ),
        "## Record",
        "The mixture and its opponents sample their actions; a member is drawn for each match.",
        _record(card),
        *_files(card),
        _USAGE,
    ]
    return "\n\n".join(sections)


def _equilibrium(card: MixtureCard) -> list[tuple[str, object]]:
    cyclicity = "unknown" if card.cyclicity is None else f"{card.cyclicity:.3f}"
    return [
        ("weighed players", card.num_players),
        ("expected score against the best of them", f"{card.worst_score:.4f}"),
        ("cyclicity of the league", cyclicity),
        *_exploitability(card),
    ]


def _record(card: AnyCard) -> str:
    if not card.record:
        return "No matches were played for this card."
    return _table(
        (
            *("opponent", "mode", "seat", "matches", "distinct", "wins", "draws", "losses"),
            *("score", "mean return"),
        ),
        [
            (
                *(line.opponent, line.mode, line.seat),
                *(line.matches, "" if line.distinct is None else line.distinct),
                *(line.wins, line.draws, line.losses),
                "" if line.score is None else f"{line.score:.3f}",
                f"{line.mean_return:.3f}",
            )
            for line in card.record
        ],
    )


def _files(card: AnyCard) -> tuple[str, ...]:
    return (
        "## Versions",
        # The environment's packages come first, then those that wrote the export.
        _table(("package", "version"), (card.environment.versions | card.versions).items()),
        "## Files",
        _table(
            ("file", "bytes", "sha256"),
            [(name, record.size_bytes, record.sha256) for name, record in card.files.items()],
        ),
    )


_USAGE = """## Use

`champion.py` needs numpy and onnxruntime; how old that may be is among the versions. `reset` begins
an episode: a policy with a memory forgets the one before, a mixture draws its member, with
probabilities that are for members which sample their actions (`sample=True`, `--sample`):

    from champion import Champion
    champion = Champion(".", seed=1)
    champion.reset()
    action = champion.act(observation, action_mask)

`python champion.py` plays the environment against uniformly random moves; `--trust` lets it import
the environment where that is code of somebody's.
"""


def summary(card: Card) -> list[tuple[str, object]]:
    """Return what a policy is, its strength and its origin, as names and values."""
    network = card.network
    strength = f"{rating_text(card.rating)}; bot:random is 0, 400 points are odds of 10 to 1"
    return [
        *_environment(card),
        ("rating", strength),
        ("rated", RATED[card.rating.mode]),
        *_calibration(card.rating),
        *_exploitability(card),
        ("encoder", network.encoder),
        ("hidden layers", list(network.hidden_sizes)),
        ("memory", "none" if network.core == "none" else f"{network.core} {network.core_size}"),
        ("agent id", "yes" if network.agent_id else "no"),
        ("value", "yes" if card.value else "no"),
        ("agent steps", card.agent_steps),
        ("learner updates", card.learner_updates),
        ("generation", card.generation),
        ("weights", card.weights_digest),
        *_origin(card),
    ]


def _environment(card: AnyCard) -> list[tuple[str, object]]:
    environment = card.environment
    bounds = ("numbers of actions are", environment.continuous_actions)
    return [
        ("environment", f"{environment.id} {json.dumps(environment.kwargs)}"),
        ("population", card.population),
        ("agents", ", ".join(card.agents)),
        ("observation", _space(card.observation.space)),
        ("actions", _space(card.action.space)),
        # Choices have no bounds.
        *([bounds] if card.action_layout.num_continuous else []),
        ("action mask", card.mask or "none"),
    ]


def _exploitability(card: AnyCard) -> list[tuple[str, object]]:
    # Known for small two-player zero-sum games only: no line instead of an unknown.
    if card.exploitability is None:
        return []
    return [
        ("exploitability (a best response's gain, mean of seats)", f"{card.exploitability:.4f}")
    ]


def _origin(card: AnyCard) -> list[tuple[str, object]]:
    return [("run", card.run), ("created", card.created)]


def _calibration(rating: CardRating) -> list[tuple[str, object]]:
    """Return how well the rating predicts evaluation results, where that is known."""
    lines: list[tuple[str, object]] = []
    if rating.anchor_matches and rating.anchor_predicted is not None:
        seen = f"{rating.anchor_score:.3f} in {rating.anchor_matches:.0f} matches"
        promised = f"{rating.anchor_predicted:.3f} by its rating"
        lines.append(("score against bot:random in the league", f"{seen}, {promised}"))
    if rating.pair_deviation is not None:
        lines.append(("pairs are off their ratings by, Elo", f"{rating.pair_deviation:.0f}"))
    return lines


def rating_text(rating: CardRating | CardLevel) -> str:
    """Return a rating with its interval, in words where it has none."""
    if rating.rating is None:
        return "unrated"
    if rating.rating_low is None:
        return f"{rating.rating:.0f}"
    if rating.rating_high is None:
        return f"{rating.rating_low:.0f}+ (nobody of the league took a point from it)"
    return f"{rating.rating:.0f} (95%: {rating.rating_low:.0f} to {rating.rating_high:.0f})"


def _space(space: Mapping[str, Any]) -> str:
    match space["kind"]:
        case "Dict":
            members = (f"{name}: {_space(member)}" for name, member in space["spaces"].items())
            return f"Dict({', '.join(members)})"
        case "Tuple":
            return f"Tuple({', '.join(_space(member) for member in space['spaces'])})"
        case "Discrete":
            return f"Discrete {space['n']}, from {space['start']}"
        case "MultiDiscrete":
            return f"MultiDiscrete {space['nvec']}, from {space['start']}"
        case "MultiBinary":
            return f"MultiBinary {space['shape']}"
    # A bound for each element would fill pages.
    bounds = (space[name] if np.ndim(space[name]) == 0 else "various" for name in ("low", "high"))
    return (
        f"{space['kind']} {space['shape']} {space['dtype']}, from {' to '.join(map(str, bounds))}"
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    # Nothing but the header and the line below it.
    if len(lines) == 2:
        return "None."
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    # A bar would begin another cell, a line break end the table.
    return str(value).replace("|", "\\|").replace("\n", " ")
