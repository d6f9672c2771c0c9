"""Descriptors of a process that serves others: as many as the system lets it have. Torch-free.

Tests: `tests/faults/test_strangers.py`.
"""

from __future__ import annotations

import resource

MOST = 65536
"""Number above which the limit is not raised: some systems have none, and some programs count."""


def raise_limit() -> int:
    """Raise this process's limit of descriptors to its hard one, and return what holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft if soft != resource.RLIM_INFINITY else most
