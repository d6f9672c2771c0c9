"""``python -m experiments.faults.hosts.relay MS``: a wire between two bridges that takes its time.

It makes two TAP devices in its namespace, prints their names, and passes each frame from one to the
other after a delay. For kernels without netem.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import struct
import sys
import time
from collections import deque

DEVICES = ("near0", "far0")
FRAME_BYTES = 1 << 16

# <linux/if_tun.h>
TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000


def open_tap(name: str) -> int:
    """Make a TAP device, and return the descriptor of its frames."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def main(delay_s: float) -> None:
    """Pass frames on for ever."""
    first, second = (open_tap(name) for name in DEVICES)
    other = {first: second, second: first}
    sys.stdout.write(" ".join(DEVICES) + "\n")
    sys.stdout.flush()
    # All frames have the same delay, so they leave in the order of arrival.
    waiting: deque[tuple[float, int, bytes]] = deque()
    with selectors.DefaultSelector() as selector:
        for descriptor in other:
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            wait_s = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
            ready = selector.select(wait_s)
            for key, _ in ready:
                # A read fails while the device is not up or has no more frames.
                with contextlib.suppress(OSError):
                    frame = os.read(key.fd, FRAME_BYTES)
                    waiting.append((time.monotonic() + delay_s, other[key.fd], frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, to, frame = waiting.popleft()
                # A full queue drops the frame, as a switch does.
                with contextlib.suppress(OSError):
                    os.write(to, frame)


if __name__ == "__main__":
    main(float(sys.argv[1]) / 1000.0)
