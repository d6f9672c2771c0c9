"""The section ``stop``: when a run is finished."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_serializer, model_validator

from arena.config import Model
from populations.fields import Count, Seconds, canonical


class StopEvaluation(Model):
    """Result against a player, in evaluation matches, that ends the run."""

    player: str
    """One of ``evaluation.bots``."""

    score: float | None = Field(None, gt=0.0, le=0.999)
    """Points a match (1, 1/2, 0); or ``return``."""

    mean_return: float | None = Field(None, alias="return")
    """Undiscounted return; or ``score``."""

    @field_validator("player")
    @classmethod
    def _one_spelling(cls, player: str) -> str:
        return canonical(player)

    @model_validator(mode="after")
    def _one_goal(self) -> StopEvaluation:
        if (self.score is None) == (self.mean_return is None):
            raise ValueError("must have one of score and return, not both or none")
        return self

    @model_serializer
    def _as_written(self) -> dict[str, object]:
        # ``return`` is a word of Python's, so the attribute has another name.
        return {"player": self.player, self.kind: self.value}

    @property
    def kind(self) -> Literal["score", "return"]:
        """Name of what is to be reached."""
        return "return" if self.score is None else "score"

    @property
    def value(self) -> float:
        """Value to be reached."""
        found = self.mean_return if self.score is None else self.score
        assert found is not None, "one of the two is set"
        return found


class StopConfig(Model):
    """When a run is finished: whichever comes first; null is no limit."""

    agent_steps_per_policy: Count | None = 5_000_000
    """Every active policy has done so many agent steps."""

    agent_steps: Count | None = None
    """The policies have done so many together."""

    duration_s: Seconds | None = None
    """The run has lasted so long, stops and resumes not counted."""

    rating: float | None = None
    """In every population a policy's rating has reached this for certain: by a lower bound that
    holds however often and at however many policies one looks."""

    evaluation: StopEvaluation | None = None
    """A result against a bot has reached a value: by a lower bound of the newest matches of a
    policy's generation that holds however often and at however many policies one looks."""

    success_rate: float | None = Field(None, gt=0.0, le=1.0)
    """Share of a policy's newest episodes whose end has ``infos[agent]["success"]``."""

    members: Literal["any", "all"] = "any"
    """Whether one policy of each population reaches ``rating``, ``evaluation`` and
    ``success_rate``, or every active policy."""
