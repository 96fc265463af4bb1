"""What a person sees while stages run: a bar on a terminal, plain lines elsewhere. All of it goes to stderr."""

import sys
import time
from typing import Any

from stages.quantity import format_amount

LINE_SECONDS = 10.0


class PlainProgress:
    """A line when a stage starts and ends, and every ten seconds between."""

    def start(self, stage: str, tasks: int, size: int) -> None:
        self.stage, self.tasks, self.size = stage, tasks, size
        self.done_tasks = self.done = 0
        self.begun = self.said = time.monotonic()
        self._say(f"{stage}: {tasks} {'task' if tasks == 1 else 'tasks'}, {format_amount(size)} bytes")

    def advance(self, tasks: int, size: int) -> None:
        self.done_tasks += tasks
        self.done += size
        now = time.monotonic()
        if now - self.said >= LINE_SECONDS and self.done_tasks < self.tasks:
            self.said = now
            self._say(f"{self.stage}: {self.done_tasks} of {self.tasks} tasks, {now - self.begun:.0f} s")

    def stop(self) -> None:
        if self.done_tasks == self.tasks:
            self._say(f"{self.stage}: done in {time.monotonic() - self.begun:.1f} s")

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class BarProgress:
    """A bar a stage, by bytes of work."""

    def start(self, stage: str, tasks: int, size: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.bar: Any = Progress(
            TextColumn("{task.description:<16}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[done]}/{task.fields[tasks]} tasks"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self.tasks, self.done = tasks, 0
        self.task = self.bar.add_task(stage, total=max(1, size), done=0, tasks=tasks)
        self.bar.start()

    def advance(self, tasks: int, size: int) -> None:
        self.done += tasks
        self.bar.update(self.task, advance=size, done=self.done)

    def stop(self) -> None:
        if self.done == self.tasks:
            self.bar.update(self.task, completed=self.bar.tasks[0].total)
        self.bar.stop()


def progress() -> PlainProgress | BarProgress:
    """The display that fits where stderr goes."""
    return BarProgress() if sys.stderr.isatty() else PlainProgress()
