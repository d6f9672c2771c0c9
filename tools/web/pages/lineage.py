"""Family tree of the policies.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from populations.views.family_tree import family_tree

from ...show.labels import reader
from ..content import Block, Cell, Chart, Content, Row, cell
from .asked import Asked, Line, best_policies, lines_of, number, standing_lines, with_ends

MAX_LANES = 40
"""Policies of one tree."""

GENERATION_COLUMNS = (
    *("policy", "generation", "cause", "weights of", "begins at", "ends at", "Elo at begin"),
    *("Elo at end", "gained", "copies"),
)


def lineage(asked: Asked) -> Content:
    """Return the family tree: generations, whose weights they began from, and what they gained."""
    document = asked.documents["lineage"]
    generations = with_ends(lines_of(document, "generations"), asked.documents["standings"])
    blocks = []
    for name in standing_lines(asked.documents["standings"]):
        best = best_policies(asked, name)
        own = [line for line in generations if line["population"] == name]
        blocks.append(
            Block(
                heading=f"Lineage of {name}",
                note="A bar is a generation: from its first agent step to its last, with the Elo "
                "gained, by one fit; at the right is the rating. Blue gained, orange lost, grey "
                "neither. An arrow is a copy of weights, a thick one a copy that the best policy "
                f"goes back to. {min(len(best), MAX_LANES)} of {len(best):,} policies.",
                chart=_tree(asked, name, best[:MAX_LANES]) if own else None,
                table=asked.part(
                    GENERATION_COLUMNS,
                    own,
                    lambda line: generation_row(asked, line),
                    csv="lineage",
                ),
            )
        )
    return Content(title="Lineage", blocks=blocks)


def generation_row(asked: Asked, line: Line) -> Row:
    """Return a generation as a row."""
    keys = ("agent_steps_begin", "agent_steps_end", "elo_begin", "elo_end")
    return Row(
        cells=[
            asked.player(line["policy"]),
            cell(line["generation"]),
            cell(line["cause"]),
            _parent(asked, line),
            *(cell(line[key]) for key in keys),
            cell(_gained(line)),
            cell(line["copies"]),
        ]
    )


def _gained(line: Line) -> str | None:
    gain, low, high = (number(line[f"elo_gain{end}"]) for end in ("", "_low", "_high"))
    if gain is None:
        return None
    return f"{gain:+z.0f}" + (
        "" if low is None or high is None else f" ({low:+z.0f} to {high:+z.0f})"
    )


def _parent(asked: Asked, line: Line) -> Cell:
    parent = line["parent"]
    # player/p001#3: the policy and its generation.
    return cell(None) if parent is None else asked.player(str(parent).partition("#")[0])


def _tree(asked: Asked, name: str, policies: list[str]) -> Chart:
    ratings = {
        line["player"]: line["rating"]
        for line in standing_lines(asked.documents["standings"])[name]
    }
    rows = [{"policy": policy, "rating": ratings[policy]} for policy in policies]
    on_page = reader([name], asked.links.player)
    return Chart(
        kind="drawing",
        label="Family tree of the policies over agent steps; the table has the figures",
        data={"svg": family_tree([rows], asked.documents["lineage"], on_page)},
    )
