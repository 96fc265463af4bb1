"""What stages and engines agree on: tasks, the work done to one, and who is told about it."""

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Task:
    """One unit of a stage: a name that sorts, the work, what it is about, and its size for balance and progress."""

    name: str
    work: "Work"
    payload: Any
    bytes: int


class Work(Protocol):
    """What a stage does to one task; picklable, idempotent, and silent: it commits shards and returns nothing."""

    def __call__(self, task: Task) -> None: ...


class Progress(Protocol):
    """Told about a stage's start, each part done (in bytes of task size), and its end."""

    def start(self, stage: str, tasks: int, size: int) -> None: ...
    def advance(self, tasks: int, size: int) -> None: ...
    def stop(self) -> None: ...
