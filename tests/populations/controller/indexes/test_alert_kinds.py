"""Kinds of alerts: each says what to do, and is patient in both directions."""

from __future__ import annotations

from typing import get_args

from populations.config.sections import AlertKind
from populations.controller.indexes.alert_kinds import KINDS


def test_every_kind_of_the_configuration_is_there_and_no_other() -> None:
    assert set(KINDS) == set(get_args(AlertKind))


def test_each_says_what_to_do_in_whole_sentences_and_needs_a_measurement() -> None:
    for name, kind in KINDS.items():
        assert kind.advice.endswith("."), name
        assert len(kind.advice) > 40, name
        assert kind.raise_after >= 1, name
        assert kind.clear_after >= 1, name


def test_what_fluctuates_has_to_be_wrong_several_times() -> None:
    """A single update may have any loss, divergence or entropy."""
    for name in ("entropy_collapsed", "loss_high", "kl_high"):
        assert KINDS[name].raise_after > 1
        assert KINDS[name].clear_after > 1
