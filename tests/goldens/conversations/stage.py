"""A stage for the controller's server: transport, launcher, clock and worker threads in memory.

Time moves only from one line of a conversation to the next, and in ticks between them. What a
worker thread is asked waits for the line at which its answer is taken, and is computed then, in
the thread of the server. So nothing here depends on the machine or its speed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tests.goldens.conversations.today import ANSWERS, Words
from tests.goldens.forms import Document

TICK_S = 0.5
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Cast(Protocol):
    """The other side of a conversation: learners that are simulated, or a record of them."""

    def next(self, *, before_s: float) -> Document | None:
        """Take what comes in next; None: nothing until then."""

    def hear(self, line: Document, message: Any) -> None:
        """Hear what the controller says or asks; the message itself, where it is one."""


class Stage:
    """Everything that a server is given, and the talk so far."""

    num_bad: Mapping[str, int] = {}
    endpoint = "inproc://conversation"

    def __init__(self, cast: Cast, look: Callable[[str], None]) -> None:
        self.now_s = 0.0
        self._cast = cast
        self._look = look
        self._words: Words | None = None
        self._slots: dict[str, int | None] = {}
        self._ended: list[tuple[int, int | None]] = []
        self._owes_a_turn = False
        self._asked: dict[str, list[Callable[[], None]]] = {}
        self._request_stop: Callable[[str], None] = lambda reason: None

    def open(self, words: Words, request_stop: Callable[[str], None]) -> None:
        """Begin, with the words of the run and the way to stop it."""
        self._words = words
        self._request_stop = request_stop

    @property
    def words(self) -> Words:
        assert self._words is not None
        return self._words

    def clock(self) -> float:
        return self.now_s

    def utc(self) -> str:
        return (BEGIN + timedelta(seconds=self.now_s)).isoformat(timespec="milliseconds")

    def wait(self, seconds: float) -> None:
        raise AssertionError(f"the controller waits {seconds} s: no disk refuses here")

    def _out(self, line: Document, message: Any = None) -> None:
        self._cast.hear({"at": self.now_s, **line}, message)

    def receive(self, timeout_s: float) -> list[tuple[Any, Any]]:
        if timeout_s <= 0.0 or self._owes_a_turn:
            self._owes_a_turn = False
            return []
        tick_s = (self.now_s // TICK_S + 1) * TICK_S
        line = self._cast.next(before_s=tick_s)
        if line is None:
            self.now_s = tick_s
            return []
        self.now_s = line["at"]
        return self._take(line)

    def _take(self, line: Document) -> list[tuple[Any, Any]]:
        match line:
            case {"answer": word}:
                self._asked[word].pop(0)()
            case {"ends": slot, "code": code}:
                self._ended.append((slot, code))
            case {"stop": reason}:
                self._request_stop(reason)
            case {"look": name}:
                self._look(name)
            case {"from": learner}:
                (kind,) = set(line) - {"at", "from", "slot"}
                if kind == "Hello":
                    self._slots[learner] = line.get("slot")
                said = self.words.message(learner, kind, line[kind], utc=self.utc())
                return [(learner, said)]
            case _:
                raise ValueError(f"no line of a conversation: {line}")
        return []

    def send(self, learner: str, message: Any) -> bool:
        self._out({"to": learner, **self.words.document(message)}, message)
        return True

    def take_bad_messages(self) -> list[Any]:
        return []

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        self._out({"start": slot, "populations": list(populations)})

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        self._out({"kill": slot})

    def slot_of(self, hello: Any) -> int | None:
        return self._slots[hello.learner]

    def waiting(self) -> Collection[int]:
        return ()

    def exited(self) -> list[tuple[int, int | None]]:
        ended, self._ended = self._ended, []
        # The end is handled before any other event.
        self._owes_a_turn = bool(ended)
        return ended

    def close(self, *, linger_s: float = 0.0) -> None:
        return

    def worker(self, name: str) -> Executor:
        """A thread that works only when its answer is taken."""
        del name
        return _Worker(self)

    def ask(self, word: str, work: Callable[[], None]) -> None:
        """Let work wait for its line."""
        self._asked.setdefault(word, []).append(work)
        self._out({"asks": word})

    def finish(self) -> None:
        """Do what still waits; its answers are not taken."""
        for waiting in self._asked.values():
            while waiting:
                waiting.pop(0)()


class _Worker(Executor):
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def submit(self, work: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def compute() -> None:
            try:
                result = work(*arguments, **options)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        word = ANSWERS.get(work.__name__)
        if word is None:
            compute()
        else:
            self._stage.ask(word, compute)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            self._stage.finish()
