"""The exceptions of Arena.

ArenaError
├── ConfigError            what a user wrote cannot work (exit 2)
│   ├── ConfigFaults       several of them at once
│   └── EnvironmentUnavailable   unknown id or missing extra
├── EnvironmentFault       an environment broke its contract
├── CheckpointError
│   ├── CheckpointMissing
│   ├── CheckpointCorrupt
│   └── DiskRefused            full, read-only, failing: says nothing about the checkpoint
├── NonFiniteError         a loss, gradient or weight is not finite, three times in a row
├── WireError
│   ├── DecodeError
│   ├── VersionMismatch
│   ├── AddressInUse           nobody else may listen there (exit 4)
│   ├── NotAdmitted            the controller knows no such key (a learner's exit 2)
│   ├── AuthenticatorDead      nobody checks keys any more (exit 3)
│   └── PeerLost
└── ExportError
"""

from __future__ import annotations

from collections.abc import Iterable


class ArenaError(Exception):
    """Root of everything that Arena raises for a caller to handle."""


class ConfigError(ArenaError):
    """What a user wrote cannot work. The text names the key, the rule and the value."""


class ConfigFaults(ConfigError):
    """Several faults of what a user wrote, found at once.

    Attributes:
        faults: A sentence for each.
    """

    def __init__(self, faults: Iterable[str]) -> None:
        """Take the faults in order, each one once."""
        self.faults = tuple(dict.fromkeys(faults))
        super().__init__("; ".join(self.faults))


def faults_of(error: ConfigError) -> tuple[str, ...]:
    """The faults that an error names."""
    return error.faults if isinstance(error, ConfigFaults) else (str(error),)


class BrokenRules(ValueError):
    """Rules between keys that a document breaks; raised where pydantic checks a model.

    A `ConfigError` would end that check and hide the faults of all other keys.

    Attributes:
        faults: A sentence for each, with its keys, its rule and the values.
    """

    def __init__(self, *faults: str) -> None:
        """Take the faults in order."""
        self.faults = faults
        super().__init__("; ".join(faults))


class EnvironmentFault(ArenaError):
    """An environment broke its contract: a non-finite number, a wrong shape, an empty mask."""


class EnvironmentUnavailable(ConfigError):
    """An environment cannot be made: unknown id, or a package is missing. Names the pip line."""


class CheckpointError(ArenaError):
    """Something about a checkpoint."""


class CheckpointMissing(CheckpointError):
    """There is no checkpoint at a key."""


class CheckpointCorrupt(CheckpointError):
    """A file of a checkpoint is missing, truncated or altered."""


class DiskRefused(CheckpointError):
    """The disk is full, read-only, failing or gone: the same may work once it is not."""


class NonFiniteError(ArenaError):
    """Three updates in a row had a non-finite loss, gradient or weight."""


class WireError(ArenaError):
    """Something about the connection between controller and learners."""


class DecodeError(WireError):
    """Bytes that are no message of this protocol."""


class VersionMismatch(WireError):
    """The other side speaks another protocol version.

    Attributes:
        theirs: The other side's.
        ours: This side's.
    """

    def __init__(self, reason: str, *, theirs: int, ours: int) -> None:
        """Say it, with both numbers."""
        super().__init__(reason)
        self.theirs = theirs
        self.ours = ours


class AddressInUse(WireError):
    """An address cannot be listened on."""


class NotAdmitted(WireError):
    """The controller does not let this learner in: its key is wrong, or it has none."""


class AuthenticatorDead(WireError):
    """The thread that checks learners' keys has ended, so nobody can be let in."""


class PeerLost(WireError):
    """The other side is gone."""


class ExportError(ArenaError):
    """An export failed or does not reproduce the policy."""
