"""Engines: tasks are dealt out, run somewhere, and a failure or a dead worker ends the stage with words."""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.corpus import CorpusSpec
from stages.corpus_plan import plan_corpus
from stages.engine import BYTES_PER_RANK, ENGINES, RANKS_PER_WORKER, LocalEngine, TaskStep, group_tasks
from stages.errors import UserError
from stages.line import Line
from stages.specfile import load_spec
from stages.task import Task


@dataclass
class Told:
    """A progress that keeps what it is told."""

    events: list = field(default_factory=list)

    def start(self, stage, tasks, size):
        self.events.append(("start", stage, tasks, size))

    def advance(self, tasks, size):
        self.events.append(("advance", tasks, size))

    def stop(self):
        self.events.append(("stop",))

    @property
    def done(self):
        return tuple(sum(e[i] for e in self.events if e[0] == "advance") for i in (1, 2))


@dataclass(frozen=True)
class Write:
    """Work: a file that says which process wrote it; some payloads make it fail."""

    folder: Path

    def __call__(self, task):
        if task.payload == "fail":
            raise UserError(f"source web: {task.name} is bad; mend it")
        if task.payload == "break":
            raise ZeroDivisionError(task.name)
        if task.payload == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if task.payload == "sleep":
            time.sleep(60)
        (self.folder / task.name).write_text(str(os.getpid()))


def tasks(folder, payloads):
    return [Task(f"{i:03d}", Write(folder), payload, 10 + i) for i, payload in enumerate(payloads)]


@given(
    st.lists(st.integers(0, 3 * BYTES_PER_RANK), min_size=1, max_size=40),
    st.integers(1, 8),
)
def test_groups(sizes, workers):
    given_tasks = [Task(f"{i:03d}", None, None, size) for i, size in enumerate(sizes)]
    groups = group_tasks(given_tasks, workers)
    assert sorted(t.name for g in groups for t in g) == [t.name for t in given_tasks]
    assert all(groups)
    assert len(groups) <= min(len(sizes), max(workers, workers * RANKS_PER_WORKER))
    assert len(groups) >= min(len(sizes), workers)
    loads = [sum(max(1, t.bytes) for t in g) for g in groups]
    assert max(loads) - min(loads) <= max(1, *sizes)
    assert group_tasks(given_tasks[::-1], workers) == groups


def test_small_tasks_share_a_rank():
    small = [Task(f"{i:03d}", None, None, 100) for i in range(50)]
    assert [len(g) for g in group_tasks(small, 2)] == [25, 25]
    large = [Task(f"{i:03d}", None, None, BYTES_PER_RANK) for i in range(50)]
    assert len(group_tasks(large, 2)) == 2 * RANKS_PER_WORKER


def test_a_step_takes_no_documents():
    with pytest.raises(ValueError, match="reads its own shards"):
        TaskStep("ingest", {0: []}).run(data=iter([]))


def test_no_tasks_start_nothing(tmp_path):
    told = Told()
    with LocalEngine(tmp_path / "logs", 2, told) as engine:
        engine.run("ingest", "ingest", [])
    assert told.events == []
    assert not (tmp_path / "logs").exists()


def test_one_worker_is_this_process(tmp_path):
    told = Told()
    with ENGINES["local"](tmp_path / "logs", 1, told) as engine:
        engine.run("ingest", "ingest/web", tasks(tmp_path, [None] * 5))
    assert {(tmp_path / f"{i:03d}").read_text() for i in range(5)} == {str(os.getpid())}
    assert told.events[0] == ("start", "ingest", 5, 60)
    assert told.events[-1] == ("stop",)
    assert told.done == (5, 60)
    assert (tmp_path / "logs" / "ingest" / "web").is_dir()


@pytest.mark.parametrize(("payload", "error"), [("fail", UserError), ("break", ZeroDivisionError)])
def test_a_failing_task_raises_its_own_error_here(tmp_path, payload, error):
    told = Told()
    with LocalEngine(tmp_path / "logs", 1, told) as engine, pytest.raises(error, match="001"):
        engine.run("ingest", "ingest", tasks(tmp_path, [None, payload]))
    assert told.events[-1] == ("stop",)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    with LocalEngine(tmp_path_factory.mktemp("logs"), 2, Told()) as engine:
        yield engine


def test_workers_are_processes_that_are_kept(tmp_path, pool):
    pool.run("one", "one", tasks(tmp_path, [None] * 12))
    first = {(tmp_path / f"{i:03d}").read_text() for i in range(12)}
    pool.run("two", "two", tasks(tmp_path, [None] * 12))
    second = {(tmp_path / f"{i:03d}").read_text() for i in range(12)}
    assert str(os.getpid()) not in first | second
    assert len(first | second) <= 2


@pytest.mark.parametrize(("payload", "error"), [("fail", UserError), ("break", ZeroDivisionError)])
def test_a_failing_task_raises_its_own_error_through_processes(tmp_path, pool, payload, error):
    with pytest.raises(error, match="001"):
        pool.run("ingest", "ingest", tasks(tmp_path, [None, payload, None]))
    pool.run("ingest", "ingest", tasks(tmp_path, [None]))


def test_a_killed_worker_is_noticed_and_replaced(tmp_path, pool):
    begun = time.monotonic()
    with pytest.raises(UserError, match="^store: a worker process died .* fewer --workers .* Logs: .*store/tiny"):
        pool.run("store", "store/tiny", tasks(tmp_path, ["sleep", "die", "sleep"]))
    assert time.monotonic() - begun < 30
    pool.run("store", "store/tiny", tasks(tmp_path, [None, None]))
    assert (tmp_path / "001").exists()


def test_two_workers_make_what_one_process_makes(pool, tiny_line, write_specs, tmp_path):
    write_specs(tmp_path)
    plan = plan_corpus(load_spec(tmp_path / "corpus.yaml", CorpusSpec), tmp_path, tmp_path / "cache")
    artifacts = Line(plan, tmp_path / "build", lambda: pool).run()
    assert {d: a.content for d, a in artifacts.items()} == {d: a.content for d, a in tiny_line.artifacts.items()}
    files = {d: [f.sha256 for s in a.shards for f in s.files] for d, a in artifacts.items()}
    assert files == {d: [f.sha256 for s in a.shards for f in s.files] for d, a in tiny_line.artifacts.items()}


@dataclass(frozen=True)
class Stop:
    """Work: kill the process that runs it once another task has been committed."""

    work: object

    def __call__(self, task):
        self.work(task)
        os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """An engine whose third stage kills its worker after one task."""

    def __init__(self, engine):
        self.engine, self.stages = engine, 0

    def run(self, stage, log, given_tasks):
        self.stages += 1
        if self.stages == 3:
            given_tasks = [Task(t.name, Stop(t.work), t.payload, t.bytes) for t in given_tasks]
        self.engine.run(stage, log, given_tasks)


def test_a_build_goes_on_after_a_killed_worker(pool, run_line, tiny_line, write_specs, tmp_path):
    write_specs(tmp_path)
    plan = plan_corpus(load_spec(tmp_path / "corpus.yaml", CorpusSpec), tmp_path, tmp_path / "cache")
    deadly = Deadly(pool)
    with pytest.raises(UserError, match="exact_duplicates: a worker process died"):
        Line(plan, tmp_path / "build", lambda: deadly).run()
    built = run_line(tmp_path)
    assert built.store.content == tiny_line.store.content
