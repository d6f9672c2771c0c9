"""Kinds of trouble, and what must come of each: `test_whose_fault` goes through them.

`tests/assets/trouble.py` is what goes wrong, and `tests/faults/troubled_runs.py` how a run falls
into it and out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.faults.runs import document

AGENT_STEPS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How large a run is.

    Attributes:
        policies: Number of policies.
        learners: Number of learners.
        cooperates: Whether both agents are one side.
        workers: Processes of each learner that step its environments.
    """

    policies: int
    learners: int
    cooperates: bool
    workers: int

    def document(self, **sections: object) -> dict[str, object]:
        """A configuration that goes on for ever."""
        environment: dict[str, object] = {
            "id": "trouble:Rounds",
            "num_envs": 4,
            "num_env_workers": self.workers,
        }
        if self.cooperates:
            environment["sides"] = {"team": ["*"]}
        more = sections.pop("environment", {})
        assert isinstance(more, dict)
        config = document(
            environment={**environment, **more},
            learners=self.learners,
            assignment={"agent_steps": AGENT_STEPS, "target_s": 1.0},
            pbt={"exploit": "none", "explore": "none"},
        )
        populations = config["populations"]
        assert isinstance(populations, dict)
        populations["player"] |= {"size": self.policies, **_mapping(sections.pop("player", {}))}
        return {**config, **sections}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A kind of trouble, and what must come of it.

    Attributes:
        name: In the flag's file.
        setting: How large the run is.
        sentence: Pattern of what the user reads; empty: nothing needs to be said.
        comes: ``trains``: all policies go on training meanwhile; ``pauses``: the run pauses, and
            is stopped; ``resumes``: it pauses, and goes on by itself once all is well; ``ends``:
            it pauses, and ends with exit code 3.
        share: Share of the episodes that it befalls.
        whom: Learner, or mark of a policy, that it befalls alone; empty: all.
        anew: Whether learners are started anew, so that they meet it.
        sections: Further sections of the configuration.
    """

    name: str
    setting: Setting
    sentence: str
    comes: Literal["trains", "pauses", "resumes", "ends"] = "trains"
    share: float = 1.0
    whom: str = ""
    anew: bool = False
    sections: Mapping[str, object] = field(default_factory=dict)


def _setting(policies: int, learners: int, kind: Literal["vs", "with"], workers: int) -> Setting:
    return Setting(policies=policies, learners=learners, cooperates=kind == "with", workers=workers)


ENCODER = {"player": {"network": {"encoder": "troubled_learning:Encoder", "hidden_sizes": [8]}}}

TROUBLES = (
    Trouble(
        name="unmade",
        setting=_setting(4, 2, "vs", 0),
        sentence=r"the environment cannot be made.*no licence",
        comes="ends",
        anew=True,
    ),
    Trouble(
        name="unmade",
        setting=_setting(2, 2, "with", 1),
        sentence=r"no licence",
        whom="learner-0",
        anew=True,
    ),
    Trouble(
        name="import",
        setting=_setting(1, 1, "vs", 1),
        sentence=r"the environment cannot be made.*the map is not there",
        comes="pauses",
        anew=True,
    ),
    Trouble(
        name="reset_raises",
        setting=_setting(2, 1, "with", 0),
        sentence=r"the environment breaks.*no pieces",
        comes="resumes",
    ),
    Trouble(
        name="step_raises",
        setting=_setting(4, 1, "with", 1),
        sentence=r"void_episodes",
        share=0.004,
    ),
    Trouble(
        name="dies",
        setting=_setting(1, 2, "with", 0),
        sentence=r"learners crash or hang.*exited with code 7",
        comes="pauses",
    ),
    Trouble(
        name="sleeps",
        setting=_setting(2, 1, "vs", 1),
        sentence=r"no progress",
        share=0.002,
    ),
    Trouble(
        name="segfaults",
        setting=_setting(4, 2, "vs", 1),
        sentence=r"was killed by SIGSEGV",
        share=0.002,
    ),
    Trouble(name="prints", setting=_setting(2, 2, "vs", 0), sentence=""),
    Trouble(
        name="grows",
        setting=_setting(1, 2, "with", 0),
        sentence=r"probably out of memory",
        share=0.002,
    ),
    Trouble(name="threads", setting=_setting(2, 1, "with", 0), sentence="", share=0.1),
    Trouble(name="torch", setting=_setting(4, 1, "vs", 0), sentence=""),
    Trouble(
        name="bot",
        setting=_setting(2, 2, "vs", 1),
        sentence=r"bot:trouble:Bot.*the opening book has no such page",
        sections={"evaluation": {"share": 0.4, "bots": ["bot:random", "bot:trouble:Bot"]}},
    ),
    Trouble(
        name="outcome",
        setting=_setting(4, 1, "vs", 1),
        sentence=r"code of your own raises.*trouble:outcome.*there is no referee",
        comes="resumes",
        sections={"environment": {"outcome": "trouble:outcome"}},
    ),
    Trouble(
        name="encoder",
        setting=_setting(2, 2, "with", 0),
        sentence=r"code of your own raises.*the table of words has no such row",
        comes="resumes",
        sections=ENCODER,
    ),
    Trouble(
        name="hook",
        setting=_setting(1, 1, "vs", 0),
        sentence=r"hook_failed",
        sections={"hooks": {"on_event": ["trouble:hook"]}},
    ),
    Trouble(
        name="sink",
        setting=_setting(4, 2, "with", 0),
        sentence=r"sink_failed",
        sections={"metrics": {"sinks": ["trouble:Sink"]}},
    ),
    Trouble(
        name="message",
        setting=_setting(2, 1, "vs", 0),
        sentence=r"results are too large to send.*cannot be sent",
        comes="pauses",
        sections={"player": {"algorithm": "troubled_learning:Talker"}},
    ),
    Trouble(
        name="descriptors",
        setting=_setting(4, 1, "with", 0),
        sentence=r"Too many open files",
        comes="pauses",
    ),
    Trouble(
        name="device",
        setting=_setting(2, 2, "vs", 0),
        sentence=r"the learners' machine fails.*out of memory",
        comes="resumes",
        sections=ENCODER,
    ),
    Trouble(
        name="nan_reward",
        setting=_setting(1, 2, "vs", 1),
        sentence=r"the environment breaks.*must be finite",
        comes="ends",
    ),
    Trouble(
        name="huge_reward",
        setting=_setting(4, 2, "with", 0),
        sentence=r"the environment breaks.*a reward must be finite and at most",
        comes="resumes",
    ),
)
"""What the flag switches on. A full disk, damage, the third hour have tests of their own."""


def _mapping(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value
