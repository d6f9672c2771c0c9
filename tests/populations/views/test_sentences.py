from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from populations.records.event_kinds import EVENT_KINDS
from populations.records.rows import EventRow
from populations.views.sentences import DERIVED, SENTENCES, event_document, sentence
from populations.views.wording import FORMS, MAX_CHARS, fields

ROOT = Path(__file__).parents[3]
COPY: dict[str, Any] = {
    "kind": "exploited",
    "subject": "player/p000",
    "donor": "player/p001",
    "donor_agent_steps": 224463,
    "gap": 253.33,
    "gap_deviation": 41.48,
    "donor_rating": 1073.46,
    "rating": 820.12,
    "probability_better": 0.987,
    "rank": 2,
    "donor_rank": 1,
    "num_ranked": 2,
    "old": {"learning_rate": 0.003, "gamma": 0.99, "clip_coef": 0.2},
    "new": {"learning_rate": 0.0036, "gamma": 0.985, "clip_coef": 0.2},
}


def test_every_kind_has_a_sentence() -> None:
    # `tests/docs/test_reference.py` checks that these are the kinds which the code emits.
    assert SENTENCES.keys() == EVENT_KINDS.keys()


def test_wordings_ask_for_keys_that_the_code_writes() -> None:
    """A misspelt key would leave its piece out of every sentence, without a word."""
    sources = [
        path
        for folder in ("populations", "tools")
        for path in (ROOT / folder).rglob("*.py")
        if path.parent.name != "inspection"
    ]
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text("utf-8"))}
    asked = {(key, form) for one in SENTENCES.values() for key, form in fields(one)}
    assert {form for _, form in asked} <= FORMS.keys()
    parts = {part for key, _ in asked for part in key.split(".")}
    assert parts - words - DERIVED.keys() == set()
    assert len(parts) > 60


def test_a_copy_is_told_with_all_numbers_that_decided() -> None:
    assert sentence(COPY) == (
        "player/p000 copied player/p001 at 224,463 agent steps, which led by 253 Elo by the fit of "
        "then (1,073 against 820, standard deviation 41, better with a probability of 98.7%); "
        "ranks 2 and 1 of 2; hyperparameters: learning_rate 0.003 -> 0.0036 and gamma 0.99 -> 0.985"
    )


def test_a_rating_in_a_sentence_says_that_it_is_of_another_fit() -> None:
    pieces = {
        piece
        for template in SENTENCES.values()
        for piece in template.split("|")
        if ":elo}" in piece
    }
    assert len(pieces) >= 3
    assert [piece for piece in pieces if "by the fit of then" not in piece] == []


def test_a_piece_whose_numbers_are_unknown_is_left_out() -> None:
    rescue = {key: COPY[key] for key in ("kind", "subject", "donor")}
    rescue["reason"] = "it was quarantined"
    assert sentence(rescue) == ("player/p000 copied player/p001; the reason: it was quarantined")
    # The gap is null, of another type, or not finite.
    for gap in (None, "much", float("nan"), [1]):
        assert "led by" not in sentence({**COPY, "gap": gap})


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            {"kind": "controller_started", "subject": "", "epoch": 2, "resumed": True},
            "The run was resumed, by controller 2",
        ),
        (
            {
                "kind": "train_assigned",
                "subject": "7",
                "learner": "one",
                "policies": ["a/p000"],
                "agent_steps": 24000,
                "episodes": 4,
                "opponents": [["a/p000", "b/p001"], ["b/p001", "a/p000"]],
            },
            "Learner one trains a/p000 for 24,000 agent steps, 4 episodes of each environment "
            "against b/p001 (assignment 7)",
        ),
        (
            {"kind": "configuration_changed", "subject": "", "stop.duration_s": [60, None]},
            "The configuration was changed: stop.duration_s 60 -> none",
        ),
        (
            {
                "kind": "configuration_changed",
                "subject": "",
                "search_space.gamma": [None, {"low": 0.9, "high": 0.99, "log": True}],
            },
            "The configuration was changed: search_space.gamma none -> "
            "{low: 0.9, high: 0.99, log: true}",
        ),
        (
            {
                "kind": "champion",
                "subject": "player/p001",
                "population": "player",
                "previous": "player/p000",
                "rating": 900.0,
                "rating_low": 612.3,
                "rating_high": None,
                "open": True,
            },
            "player/p001 is the champion now with 612 Elo or more by the fit of then, after "
            "player/p000",
        ),
    ],
)
def test_events_that_no_conversation_has_are_told_plainly(event: dict[str, Any], told: str) -> None:
    assert sentence(event) == told


def test_names_are_shortened_wherever_a_player_is_named() -> None:
    def short(player: str) -> str:
        return player.removeprefix("player/")

    assert sentence(COPY, name=short).startswith("p000 copied p001 at")
    fit: dict[str, Any] = {
        "kind": "ratings_fitted",
        "champions": {"x": {"champion": "player/p1", "rating": 1.0}},
    }
    assert sentence(fit, name=short).endswith(": p1 with 1 Elo leads")


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_every_kind_is_told_without_its_data_too(kind: str) -> None:
    """Events of other releases have fewer keys, damaged ones have other types."""
    values: list[Any] = [None, "", [], {}, 0, float("inf"), "x"]
    for value in values:
        keys = {key.split(".")[0]: value for key, _ in fields(SENTENCES[kind])}
        told = sentence({**keys, "kind": kind, "subject": "player/p000"})
        assert told.strip()
        assert not re.search(r"None|\{|\}|\n|inf\b", told)


def test_a_kind_of_another_release_is_told_by_its_data() -> None:
    event: dict[str, Any] = {
        "kind": "teleported",
        "subject": "player/p000",
        "to": "mars",
        "metres": 12,
    }
    assert sentence(event) == "teleported of player/p000: to mars and metres 12"
    assert sentence({"kind": "teleported"}) == "teleported"


def test_hostile_texts_stay_as_they_are_and_are_cut() -> None:
    hostile = "<script>alert('{subject}')</script> {0} %s\n[bold]" + "x" * 1_000_000
    row = EventRow(sequence=1, time="t", kind="quarantined", subject="p", data={"reason": hostile})
    document = event_document(row)
    told = document["sentence"]
    assert isinstance(told, str)
    assert told.startswith(
        "p was quarantined: <script>alert('{subject}')</script> {0} %s [bold]xxx"
    )
    assert len(told) < MAX_CHARS + 50
    assert document["reason"] == hostile
    json.dumps(document, allow_nan=False)


def test_data_cannot_take_the_place_of_an_events_kind() -> None:
    data: dict[str, Any] = {"kind": "champion", "sentence": "lies", "reason": "done"}
    row = EventRow(sequence=1, time="t", kind="run_finished", subject="", data=data)
    assert event_document(row)["sentence"] == "The run finished: done"
