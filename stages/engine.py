"""Running a stage's tasks on datatrove's executors.

A stage hands over a list of tasks with picklable work; each task writes and commits its own shards, so it may run
anywhere, twice, or again after a crash. datatrove gives a rank its place, log and statistics. Its local executor
starts a pool of processes for every step and waits for ever for a worker that was killed; `LocalEngine` keeps its
ranks, logs and markers but runs them in one pool for the whole build that notices a dead worker.
"""

import concurrent.futures
import contextlib
import copy
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.base import PipelineStep

from stages.errors import UserError
from stages.task import Progress, Task

RANKS_PER_WORKER = 4
BYTES_PER_RANK = 4 << 20


class TaskStep(PipelineStep):
    """A datatrove step that reads and writes for itself: rank r runs the r-th group of tasks."""

    type = "stage"

    def __init__(self, name: str, groups: Mapping[int, Sequence[Task]]) -> None:
        self.name = name
        super().__init__()
        self.groups = groups
        self.failure: UserError | None = None

    def run(self, data: Any = None, rank: int = 0, world_size: int = 1) -> None:
        """Run the rank's tasks. A `UserError` ends the rank and is kept in `failure`: datatrove would print its
        traceback. Raises ValueError when another step would feed it documents."""
        if data is not None:
            raise ValueError(f"{self.name} reads its own shards and takes no documents from the step before it")
        for task in self.groups[rank]:
            try:
                with self.track_time("task"):
                    task.work(task)
            except UserError as error:
                self.failure = error
                return
            self.stat_update("tasks", value=1, unit="task")


def _watch_parent() -> None:
    """A worker must not outlive a driver that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _start_worker(threads: int) -> None:
    import pyarrow as pa

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pa.set_cpu_count(threads)
    pa.set_io_thread_count(threads)
    threading.Thread(target=_watch_parent, daemon=True).start()


class _SharedPoolExecutor(LocalPipelineExecutor):
    """datatrove's local executor with its ranks in a pool that is already there."""

    def run_in(self, pool: concurrent.futures.Executor | None) -> Iterator[int]:
        """Run every rank; yield each as it ends. The first failure is raised when the ranks under way have ended."""
        ranks = range(self.world_size)
        if pool is None:
            for rank in ranks:
                self._only(rank).run_rank(rank)
                yield rank
            return
        futures = {pool.submit(self._only(rank).run_rank, rank): rank for rank in ranks}
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                yield futures[future]
        finally:
            for future in futures:
                future.cancel()

    def run_rank(self, rank: int) -> None:
        """One rank, with its log in a file only. Raises what its tasks raised."""
        self._run_for_rank(rank, local_rank=1)
        failure = self.pipeline[0].failure
        if failure is not None:
            raise failure

    def _only(self, rank: int) -> "_SharedPoolExecutor":
        """A copy that carries one rank's tasks, because the executor is pickled for each rank."""
        one = copy.copy(self)
        step: TaskStep = self.pipeline[0]
        one.pipeline = [TaskStep(step.name, {rank: step.groups[rank]})]
        return one


class LocalEngine:
    """Runs stages on this machine with a number of worker processes; one worker means this process itself."""

    name = "local"

    def __init__(self, logs: Path, workers: int, progress: Progress) -> None:
        self.logs, self.workers, self.progress = logs, workers, progress
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> "LocalEngine":
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, stage: str, log: str, tasks: Sequence[Task]) -> None:
        """Run all tasks of a stage; `log` names the folder of its task logs.

        Raises what the first failing task raised, or UserError when a worker process died.
        """
        if not tasks:
            return
        groups = group_tasks(tasks, self.workers)
        executor = _SharedPoolExecutor(
            [TaskStep(stage, dict(enumerate(groups)))],
            tasks=len(groups),
            workers=self.workers,
            logging_dir=str(self.logs / log),
            skip_completed=False,
        )
        self.progress.start(stage, len(tasks), sum(t.bytes for t in tasks))
        try:
            with _quiet():
                for rank in executor.run_in(self._workers()):
                    self.progress.advance(len(groups[rank]), sum(t.bytes for t in groups[rank]))
        except BrokenProcessPool:
            self._pool = None
            raise UserError(
                f"{stage}: a worker process died (killed, or out of memory); what was finished is kept. "
                f"Build again, with fewer --workers if memory was short. Logs: {self.logs / log}"
            ) from None
        finally:
            self.progress.stop()

    def _workers(self) -> concurrent.futures.ProcessPoolExecutor | None:
        if self.workers > 1 and self._pool is None:
            threads = max(1, (os.cpu_count() or 1) // self.workers)
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["stages.line"])
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.workers, mp_context=context, initializer=_start_worker, initargs=(threads,)
            )
        return self._pool


ENGINES: dict[str, Callable[[Path, int, Progress], LocalEngine]] = {"local": LocalEngine}


def group_tasks(tasks: Sequence[Task], workers: int) -> list[list[Task]]:
    """Deal tasks to ranks, the largest first and each to the lightest rank; small tasks share one, since a rank has a
    fixed cost. Which rank runs a task never changes what it writes."""
    total = sum(t.bytes for t in tasks)
    count = min(len(tasks), max(workers, min(workers * RANKS_PER_WORKER, total // BYTES_PER_RANK)))
    groups: list[list[Task]] = [[] for _ in range(count)]
    loads = [0] * count
    for task in sorted(tasks, key=lambda t: (-t.bytes, t.name)):
        lightest = loads.index(min(loads))
        groups[lightest].append(task)
        loads[lightest] += max(1, task.bytes)
    return groups


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """datatrove logs to the terminal by itself; a rank's log goes to its file only."""
    from datatrove.utils.logging import logger

    logger.remove()
    yield
