"""``card.md``: what ``card.json`` says, for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from arena.export.card import Card


def card_for_people(card: Card) -> str:
    """The text of ``card.md``."""
    sections = [
        f"# {card.player}",
        _summary(card),
        "## Record",
        "Opponents sample their actions.",
        _table(
            ("opponent", "mode", "seat", "matches", "wins", "draws", "losses", "mean return"),
            [
                (
                    *(line.opponent, line.mode, line.seat),
                    *(line.matches, line.wins, line.draws, line.losses),
                    f"{line.mean_return:.3f}",
                )
                for line in card.record
            ],
        ),
        "## Hyperparameters",
        _table(("name", "value"), [(k, f"{v:.6g}") for k, v in card.hyperparameters.items()]),
        "## Lineage",
        _table(
            ("policy", "generation", "agent steps", "weights"),
            [
                (line.policy, line.generation, line.agent_steps, line.weights[:12])
                for line in card.lineage
            ],
        ),
        "## Versions",
        _table(("package", "version"), (card.environment.versions | card.versions).items()),
        "## Files",
        _table(
            ("file", "bytes", "sha256"),
            [(name, record.size_bytes, record.sha256) for name, record in card.files.items()],
        ),
        _USAGE,
    ]
    return "\n\n".join(sections)


_USAGE = """## Use

`champion.py` needs numpy and onnxruntime:

    from champion import Champion
    action = Champion(".").act(observation, action_mask)

`python champion.py` plays the environment against uniformly random moves.
"""


def _summary(card: Card) -> str:
    environment, rating = card.environment, card.rating
    strength = "unrated"
    if rating.rating is not None:
        strength = f"{rating.rating:.0f}"
        if rating.rating_low is not None and rating.rating_high is not None:
            strength += f" (95%: {rating.rating_low:.0f} to {rating.rating_high:.0f})"
    network = card.network
    return _table(
        ("", ""),
        [
            ("environment", f"{environment.id} {json.dumps(environment.kwargs)}"),
            ("population", card.population),
            ("agents", ", ".join(card.agents)),
            ("rating", f"{strength}; bot:random is 0, 400 points are odds of 10 to 1"),
            ("observation", f"{list(card.observation.shape)} {_space(card.observation.space)}"),
            ("actions", f"{card.action.num_actions}, from {card.action.start}"),
            ("action mask", card.mask or "none"),
            ("network", f"{network.encoder} {list(network.hidden_sizes)}"),
            ("agent steps", card.agent_steps),
            ("learner updates", card.learner_updates),
            ("generation", card.generation),
            ("weights", card.weights_digest),
            ("run", card.run),
            ("created", card.created),
        ],
    )


def _space(space: dict[str, object]) -> str:
    return ", ".join(
        f"{key} {value}" for key, value in space.items() if isinstance(value, (str, int))
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    if len(lines) == 2:
        return "None."
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
