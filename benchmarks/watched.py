"""Running a command as a whole: its wall time, and the peak memory of its largest process (Linux)."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path


def run(command: list[str], **environment: str) -> tuple[float, int, str]:
    """Seconds, peak resident bytes of any process of the command, and what it printed; exits when it fails."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    peak = [0]
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peak, stop))
    watcher.start()
    output, _ = process.communicate()
    seconds = time.perf_counter() - begun
    stop.set()
    watcher.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{output}")
    return seconds, peak[0], output


def _watch(session: int, peak: list[int], stop: threading.Event) -> None:
    """Look at the high-water mark of every process of the session, five times a second."""
    while not stop.wait(0.2):
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(stat.read_text().rpartition(")")[2].split()[3]) != session:
                    continue
                for line in (stat.parent / "status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        peak[0] = max(peak[0], int(line.split()[1]) * 1024)
            except (OSError, ValueError):
                continue
