"""The section ``matchmaking``: its own keys and those of the kinds."""

from __future__ import annotations

import pytest

from populations.matchmaking.kinds import KINDS
from populations.matchmaking.settings import MatchmakingConfig, MatchmakingSection


def test_defaults() -> None:
    section = MatchmakingConfig()
    assert (section.kind, section.latest_ratio, section.living_ratio) == ("pfsp", 0.5, 0.0)
    assert section.opponents == 8
    assert section.bots == section.options == {}


def test_it_has_the_keys_of_every_kind_and_is_a_section() -> None:
    assert isinstance(MatchmakingConfig(), MatchmakingSection)
    own = [kind for kind in KINDS.values() if not kind.section]
    read = {name for kind in own for name in kind.settings.model_fields}
    assert MatchmakingConfig.model_fields.keys() == MatchmakingSection.model_fields.keys() | read


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "pfps"}, "must be one of latest, uniform"),
        ({"latest_ratio": 0.7, "living_ratio": 0.4}, "must sum to at most 1, got 0.7 and 0.4"),
        ({"bots": {"bot:random": 0.6, "exports/a": 0.5}}, "must sum to at most 1"),
        ({"options": {"x": 1}}, "options must be empty where kind is 'pfsp'"),
        ({"psro_players": 1}, "greater than or equal to 2"),
    ],
)
def test_faults_name_rule_and_value(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MatchmakingConfig.model_validate(values)


def test_shares_that_sum_to_one_but_for_rounding_pass() -> None:
    values = {"latest_ratio": 0.7, "living_ratio": 0.1 * 3}
    assert MatchmakingConfig.model_validate(values).living_ratio == 0.1 * 3
