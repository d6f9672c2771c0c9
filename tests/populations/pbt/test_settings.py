"""The section ``pbt``: its own keys and those of the kinds."""

from __future__ import annotations

import pytest

from populations.pbt.settings import PbtConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"exploit": "trunc"}, "must be one of truncation, binary_tournament"),
        ({"explore": "x"}, "must be one of perturb, resample"),
        ({"perturb_factors": (0.8, 0.0)}, "every factor must be greater than 0"),
        ({"perturb_factors": ()}, "at least 1 item"),
        ({"fraction": 0.6}, "less than or equal to 0.5"),
        ({"confidence": 1.0}, "less than 1"),
    ],
)
def test_faults_name_the_rule(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PbtConfig.model_validate(values)


def test_players_of_immigration_are_written_as_from() -> None:
    section = PbtConfig.model_validate({"immigration": {"probability": 0.5, "from": ["runs/a"]}})
    assert section.immigration.players == ("runs/a",)
    assert section.model_dump()["immigration"] == {"probability": 0.5, "from": ("runs/a",)}
