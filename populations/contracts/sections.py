"""The section ``pbt`` that a user's rule is called with."""

from __future__ import annotations

from collections.abc import Mapping

from arena.contracts.contract import Subject
from populations.pbt.settings import PbtConfig


def pbt_section(subject: Subject, keys: Mapping[str, object], **rules: object) -> PbtConfig:
    """Return the section, with the rules that are named by a text in it.

    Raises:
        ContractBroken: If a key or a rule is not known.
    """
    named = {key: rule for key, rule in rules.items() if isinstance(rule, str)}
    with subject.obeying("the section pbt must be valid"):
        return PbtConfig.model_validate({**keys, **named})
