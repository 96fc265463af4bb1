"""`python -m benchmarks.speed`: JSONL to manifest, beside `tokenizers` alone encoding the same text on all cores."""

import argparse
import gzip
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import orjson

from benchmarks import corpora, watched
from benchmarks.report import Row, write


def encode_all(files: list[Path], tokenizer: Path) -> tuple[float, int]:
    """Seconds that `tokenizers` takes for the raw texts, which are read beforehand, and their bytes."""
    from tokenizers import Tokenizer

    texts: list[str] = []
    for path in files:
        with gzip.open(path) as file:
            texts += [orjson.loads(line)["text"] for line in file]
    size = sum(len(t.encode()) for t in texts)
    encoder = Tokenizer.from_file(str(tokenizer))
    begun = time.perf_counter()
    for start in range(0, len(texts), 1000):
        encoder.encode_batch_fast(texts[start : start + 1000])
    return time.perf_counter() - begun, size


def main() -> None:
    """Run both in turn and write `results/speed.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--encode", nargs=1, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    files = corpora.corpora()
    if options.encode:
        print(*encode_all(files, options.encode[0]))
        return
    tokenizer = corpora.tokenizer_file()
    alone, whole, peaks = [], [], []
    size = 0
    for run in range(options.runs):
        command = [sys.executable, "-m", "benchmarks.speed", "--encode", str(tokenizer)]
        _, _, printed = watched.run(command, TOKENIZERS_PARALLELISM="true")
        seconds, size = float(printed.split()[-2]), int(printed.split()[-1])
        alone.append(seconds)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            spec = corpora.write_specs(folder, files)
            (folder / "build").mkdir()
            (folder / "build" / "cache").symlink_to(corpora.CACHE)
            command = [sys.executable, "-m", "mixer", "build", str(spec), "--out", str(folder / "build")]
            seconds, peak, printed = watched.run([*command, "--workers", str(options.workers)])
        whole.append(seconds)
        peaks.append(peak)
        print(f"run {run + 1}: tokenizers {alone[-1]:.1f} s, build {whole[-1]:.1f} s, peak {peak / 1e6:.0f} MB")
    ratios = [a / w for a, w in zip(alone, whole, strict=True)]
    rows = [
        Row("build against tokenizers alone", statistics.median(ratios), "x", 0.6),
        Row("peak memory of a process", max(peaks) / 1e9, "GB", 1.0, at_least=False),
        Row("tokenizers alone", size / 1e6 / statistics.median(alone), "MB/s"),
        Row("build", size / 1e6 / statistics.median(whole), "MB/s"),
    ]
    write("speed", rows, runs=options.runs, workers=options.workers, text_bytes=size)


if __name__ == "__main__":
    main()
