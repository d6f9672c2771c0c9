"""The line about finals at launch."""

from __future__ import annotations

from populations.config.run_config import validate_config
from tools.launch.display import finals_line


def line(**keys: object) -> str:
    return finals_line(validate_config({"environment": {"id": "a"}, **keys}), num_learners=2)


def test_finals_are_told_with_their_longest_time() -> None:
    assert "at most 50% of the time that training took, here 50 s" in line(stop={"duration_s": 100})
    assert "or 30 s if that is more" in line()
    assert "no limit in seconds" in line(deterministic=True)
