"""The exceptions of Arena.

ArenaError
├── ConfigError            the user's input cannot work (exit 2)
│   ├── ConfigFaults       several of them at once
│   ├── EnvironmentUnavailable   unknown id or missing extra
│   └── NotTrusted         a file names code, without the user's word
├── EnvironmentFault       an environment broke its contract
│   ├── EnvironmentNotMade     it cannot be made where it is to be played
│   ├── MachineExhausted       it met a machine without memory, descriptors or space
│   └── EnvWorkersLost     a process that steps environments has ended
├── CheckpointError
│   ├── CheckpointMissing
│   ├── CheckpointCorrupt
│   └── DiskRefused            full, read-only, failing: says nothing about the checkpoint
├── NoValue                a player has no value function
├── NonFiniteError         a loss, gradient or weight is not finite, three times in a row
├── WireError
│   ├── DecodeError
│   ├── VersionMismatch
│   ├── AddressInUse           the address is taken (exit 4)
│   ├── NotAdmitted            the controller knows no such key (a learner's exit 2)
│   ├── AuthenticatorDead      the thread that checks keys has ended (exit 3)
│   └── StoreUnreachable       a run's store does not answer, or takes nothing more now
│       └── StoreRefused       its disk is full, read-only or failing
└── ExportError

Tests: `tests/populations/config/test_reward_weights.py`, `tests/arena/test_users_code.py`.
"""

from __future__ import annotations

from collections.abc import Iterable


class ArenaError(Exception):
    """Root of all exceptions that Arena raises for a caller to handle."""


class ConfigError(ArenaError):
    """Error in the user's input. The text names the key, the rule and the value."""


class ConfigFaults(ConfigError):
    """Several faults in the user's input, found at once.

    Attributes:
        faults: One sentence per fault.
    """

    def __init__(self, faults: Iterable[str]) -> None:
        """Store the faults in order, each one once."""
        # Several rules may name the same fault.
        self.faults = tuple(dict.fromkeys(faults))
        super().__init__("; ".join(self.faults))


def faults_of(error: ConfigError) -> tuple[str, ...]:
    """Return the faults that an error names."""
    return error.faults if isinstance(error, ConfigFaults) else (str(error),)


class BrokenRules(ValueError):
    """Rules between keys that a document breaks; raised where pydantic checks a model.

    A `ConfigError` would end that check and hide the faults of all other keys.

    Attributes:
        faults: One sentence per fault, with its keys, its rule and the values.
    """

    def __init__(self, *faults: str) -> None:
        """Store the faults in order."""
        self.faults = faults
        super().__init__("; ".join(faults))


class EnvironmentFault(ArenaError):
    """An environment broke its contract: a non-finite number, a wrong shape, an empty mask."""


class EnvironmentNotMade(EnvironmentFault):
    """An environment that is to be played cannot be made, or its module not be imported."""


class MachineExhausted(EnvironmentFault):
    """An environment met a machine that lacks memory, descriptors or space."""


class EnvWorkersLost(EnvironmentFault):
    """A process that steps environments has ended, and the environments of all are gone."""


class EnvironmentUnavailable(ConfigError):
    """An environment cannot be made: unknown id, or a package is missing. Names the pip line."""


class NotTrusted(ConfigError):
    """A file names code, and the user has not said that it may be imported. Names the option."""


class CheckpointError(ArenaError):
    """Fault of a checkpoint or its store."""


class CheckpointMissing(CheckpointError):
    """There is no checkpoint at a key."""


class CheckpointCorrupt(CheckpointError):
    """A file of a checkpoint is missing, truncated or altered."""


class DiskRefused(CheckpointError):
    """The disk is full, read-only, failing or gone; a retry may succeed later."""


class NoValue(ArenaError):
    """A player has no value function, or its export has none."""


class NonFiniteError(ArenaError):
    """Three updates in a row had a non-finite loss, gradient or weight."""


class WireError(ArenaError):
    """Fault of the connection between controller and learners."""


class DecodeError(WireError):
    """Bytes that are no message of this protocol."""


class VersionMismatch(WireError):
    """The other side speaks another protocol version.

    Attributes:
        theirs: Version of the other side.
        ours: Version of this side.
    """

    def __init__(self, reason: str, *, theirs: int, ours: int) -> None:
        """Build the message with both versions."""
        super().__init__(reason)
        # The versions are attributes, because each side words the advice for its own reader
        # (`arena.wire.session`).
        self.theirs = theirs
        self.ours = ours


class AddressInUse(WireError):
    """An address cannot be listened on."""


class NotAdmitted(WireError):
    """The controller does not admit this learner: its key is wrong, or it has none."""


class AuthenticatorDead(WireError):
    """The thread that checks learners' keys has ended, so no learner can be admitted."""


class StoreUnreachable(WireError):
    """The store of a run does not answer, or cannot take or give a checkpoint now."""


class StoreRefused(StoreUnreachable):
    """The disk of a run's store is full, read-only or failing; a retry may succeed later."""


class ExportError(ArenaError):
    """An export failed or does not reproduce the policy."""
