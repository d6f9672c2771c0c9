"""Family tree of the policies.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ..content import Block, Cell, Chart, Content, Row, cell, shown
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
                "gained, by one fit. Blue gained, orange lost, grey neither. A dashed arc is a "
                f"copy of weights. {min(len(best), MAX_LANES)} of {len(best):,} policies.",
                chart=_tree(asked, best[:MAX_LANES], own) if own else None,
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


def _tree(asked: Asked, policies: list[str], generations: list[Line]) -> Chart:
    lanes = {policy: index for index, policy in enumerate(policies)}
    shown_lines = [line for line in generations if line["policy"] in lanes]
    ends = [number(line["agent_steps_end"]) or 0.0 for line in shown_lines]
    return Chart(
        kind="tree",
        label="Family tree of the policies over agent steps; the table has the figures",
        data={
            "end": max(ends, default=0.0),
            "lanes": [
                {"name": asked.short(policy), "href": asked.links.player(policy)}
                for policy in policies
            ],
            "segments": [_segment(asked, line, lanes) for line in shown_lines],
            "copies": [
                copy for line in shown_lines for copy in _copies(asked, line, lanes, shown_lines)
            ],
        },
    )


def _segment(asked: Asked, line: Line, lanes: Mapping[str, int]) -> dict[str, object]:
    gain = number(line["elo_gain"])
    changed = ", ".join(
        f"{shown(key)} {shown(value)}"
        for key, value in cast("Line", line["hyperparameters"]).items()
    )
    text = (
        f"{asked.short(line['policy'])} generation {line['generation']}, {line['cause']}, "
        f"{shown(line['agent_steps_begin'])} to {shown(line['agent_steps_end'])} agent steps"
        + ("" if gain is None else f", {gain:+z.0f} Elo")
        + f"\n{changed}"
    )
    return {
        "lane": lanes[str(line["policy"])],
        "begin": line["agent_steps_begin"],
        "end": line["agent_steps_end"],
        "gain": None if gain is None else round(gain, 1),
        "is_copy": line["cause"] == "exploit",
        "href": asked.links.player(str(line["policy"])),
        "text": text,
    }


def _copies(
    asked: Asked, line: Line, lanes: Mapping[str, int], generations: list[Line]
) -> list[dict[str, object]]:
    donor = str(line["parent"] or "").partition("#")[0]
    if line["cause"] != "exploit" or donor not in lanes:
        return []
    return [
        {
            "lane": lanes[str(line["policy"])],
            "donor": lanes[donor],
            "begin": line["parent_agent_steps"] or line["agent_steps_begin"],
            "at": line["agent_steps_begin"],
            "text": f"{asked.short(line['policy'])} copied {asked.short(donor)} at "
            f"{shown(line['parent_agent_steps'])} agent steps",
        }
    ]
