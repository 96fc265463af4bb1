"""Language identification: right labels, pages under another language's name, and MB/s beside fastText's binding.

    python -m benchmarks.language

The binding is measured when `fasttext` can be imported (fasttext-community, fasttext-numpy2); it reads the excerpts
and, for the speed alone, whole documents. Both run in one thread and are timed in CPU seconds, best of three.
"""

import gzip
import itertools
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.corpora import CACHE, ROOT, corpora
from stages.filters.measure import text_buffers
from stages.kernels.language import SPARE, excerpt
from stages.language import LID_176, PIECE_BYTES, PIECES, identify, load_model
from stages.named_file import locate

RIGHT = ("install-guide", "quotes", "scripture")
MISLABELLED = ("web-manual", "handbook", "office-help", "desktop-help")
LEAST_CHARS = 200


def code(name: str) -> str:
    """A folder's language as lid.176 says it: `pt_BR` is pt, `zh-cn` zh, `nb` no."""
    short = name.lower().replace("_", "-").split("-")[0].split("@")[0]
    return {"nb": "no"}.get(short, short)


def best(run: Callable[[], Any]) -> float:
    """CPU seconds of the fastest of three runs."""
    found = []
    for _ in range(3):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def excerpts(texts: pa.LargeStringArray) -> list[str]:
    """The words by which each text is judged."""
    data, offsets = text_buffers(texts)
    out = np.empty(PIECES * (PIECE_BYTES + SPARE), np.uint8)
    sizes = ((excerpt(data, a, b, PIECES, PIECE_BYTES, out), out) for a, b in itertools.pairwise(offsets))
    return [bytes(text[:size]).decode() for size, text in sizes]


def main() -> None:
    """Print and write `results/language.json`."""
    file = locate(LID_176, "language.model", ROOT, CACHE)
    loaded = load_model(file)
    try:
        import fasttext  # type: ignore[import-not-found]

        binding = fasttext.load_model(str(file.path))
    except ImportError:
        binding = None
    report: dict[str, Any] = {"speed": {}, "accuracy": {}, "mislabelled": {}, "binding": {}}
    compared = differ = 0
    gap = size = spent = 0.0
    for path in corpora():
        name = Path(path.name).name.removesuffix(".jsonl.gz")
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        texts = pa.array([row["text"] for row in rows], pa.large_string())
        found = identify(texts, loaded, PIECES, PIECE_BYTES)
        seconds = best(partial(identify, texts, loaded, PIECES, PIECE_BYTES))
        megabytes = sum(len(row["text"].encode()) for row in rows) / 1e6
        size, spent = size + megabytes, spent + seconds
        speed = {"documents": len(rows), "mb": round(megabytes, 2), "mb_per_s": round(megabytes / seconds, 1)}
        languages, scores = found.column("language").to_pylist(), found.column("language_score").to_pylist()
        if binding is not None:
            some = [" ".join(row["text"].split("\n")) for row in rows[:: max(len(rows) // 300, 1)]]
            whole = best(partial(binding.predict, some, k=2))
            speed["fasttext_mb_per_s"] = round(sum(len(t.encode()) for t in some) / 1e6 / whole, 2)
            for mine, score, text in zip(languages, scores, excerpts(texts), strict=True):
                if text:
                    labels, values = binding.predict(text, k=1)
                    compared += 1
                    if labels[0] != f"__label__{mine}":
                        differ += 1
                    else:
                        gap = max(gap, abs(min(float(values[0]), 1.0) - score))
        report["speed"][name] = speed
        print(name, speed, flush=True)
        if name in RIGHT:
            tally: dict[str, list[int]] = defaultdict(lambda: [0, 0])
            wrong: Counter[str] = Counter()
            for row, language in zip(rows, languages, strict=True):
                named = row.get("lang") or ""
                if len(row["text"]) > LEAST_CHARS and named != "transliteration":
                    tally[named][1] += 1
                    tally[named][0] += language == code(named)
                    if language != code(named):
                        wrong[f"{named}>{language}"] += 1
            right, all_ = (sum(t[i] for t in tally.values()) for i in (0, 1))
            report["accuracy"][name] = {
                "documents": all_,
                "right": round(right / all_, 4),
                "wrong": wrong.most_common(),
            }
            report["accuracy"][name]["by_language"] = {k: [a, b] for k, (a, b) in sorted(tally.items())}
            print("  ", report["accuracy"][name])
        if name in MISLABELLED:
            pages: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
            for row, language in zip(rows, languages, strict=True):
                named = row.get("lang") or ""
                bucket = pages[named]
                bucket[0] += 1
                bucket[1] += language == code(named)
                bucket[2] += language == "en" and code(named) != "en"
                bucket[3] += language not in ("en", code(named))
            report["mislabelled"][name] = dict(sorted(pages.items()))
            print("   language: [pages, as named, English, other]", report["mislabelled"][name])
    report["total"] = {"mb": round(size, 1), "mb_per_s": round(size / spent, 1)}
    if compared:
        report["binding"] = {"texts": compared, "other_label": differ, "largest_score_gap": round(gap, 7)}
    print(report["total"], report["binding"])
    target = ROOT / "benchmarks" / "results" / "language.json"
    target.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
