"""The counts of `stages.kernels.document` in plain Python strings, sharing no code with the kernels."""

import re
from collections import Counter

from stages.kernels.classes import ALPHABETIC, TERMINALS
from stages.kernels.sentences import spans
from stages.kernels.words import classes_of, split

STOP_CHARS = tuple(map(chr, TERMINALS.tolist()))
END_OF_LINE = (".", "?", "!", '"', "'")
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def _duplicates(parts: list[str]) -> tuple[int, int]:
    seen: set[str] = set()
    repeated = [part for part in parts if part in seen or seen.add(part)]
    return len(repeated), sum(map(len, repeated))


def _top_gram(words: list[str], size: int) -> int:
    grams = Counter(" ".join(words[at : at + size]) for at in range(len(words) - size + 1))
    return max((times, -order, len(gram) * times) for order, (gram, times) in enumerate(grams.items()))[2]


def _repeated_grams(words: list[str], size: int) -> int:
    seen: set[str] = set()
    chars = at = 0
    while at + size <= len(words):
        gram = "".join(words[at : at + size])
        if gram in seen:
            chars += len(gram)
            at += size
        else:
            seen.add(gram)
            at += 1
    return chars


def _c4(lines: list[str]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for line in lines:
        words = line.split()
        line = re.sub(r"\[\d*]|\[edit]|\[citation needed]", "", line.strip())
        lower = line.lower()
        if any(len(word) > 1000 for word in words):
            verdict = "long_word"
        elif not line.endswith(END_OF_LINE) or line.endswith("..."):
            verdict = "no_terminal"
        elif len(words) < 3:
            verdict = "few_words"
        else:
            found["lorem_ipsum_lines"] += "lorem ipsum" in lower
            if "javascript" in lower:
                verdict = "javascript"
            else:
                found["curly_bracket_lines"] += "{" in line
                verdict = "policy" if any(policy in lower for policy in POLICIES) else "kept"
        found[f"{verdict}_lines"] += 1
        if verdict == "kept":
            found["sentences"] += max(1, len(spans(line)))
    return found


def counts(text: str, stop_words: tuple[str, ...], short_line: int = 30) -> dict[str, int]:
    """Every counter of one document."""
    words = split(text)
    lines = text.splitlines()
    plain = [word for word in words if set(word) - set("'’_\uff11")]
    solid = [line for line in text.split("\n") if line.strip()]
    feeds = re.split(r"\n+", text) if text else []
    paragraphs = re.split(r"\n{2,}", text.strip()) if text else []
    found = {
        "bytes": len(text.encode()),
        "chars": len(text),
        "words": len(words),
        "punctuation_words": len(words) - len(plain),
        "letter_chars": sum(map(len, plain)),
        "alphabetic_words": sum(bool((classes_of(word) & ALPHABETIC).any()) for word in words),
        "stop_words": len(set(words) & set(stop_words)),
        "hashes": text.count("#"),
        "ellipses": text.count("...") + text.count("…"),
        "newlines": text.count("\n"),
        "lines": len(lines),
        "bullet_lines": sum(line.lstrip().startswith(("•", "-")) for line in lines),
        "ellipsis_lines": sum(line.rstrip().endswith(("...", "…")) for line in lines),
        "solid_feed_lines": len(solid),
        "punctuated_feed_lines": sum(line.endswith(STOP_CHARS) for line in solid),
        "short_feed_lines": sum(len(line) <= short_line for line in solid),
        "feed_lines": len(feeds),
        "duplicate_feed_lines": _duplicates(feeds)[0],
        "duplicate_feed_line_chars": _duplicates(feeds)[1],
        "duplicate_solid_feed_line_chars": _duplicates(solid)[1],
        "paragraphs": len(paragraphs),
        "duplicate_paragraphs": _duplicates(paragraphs)[0],
        "duplicate_paragraph_chars": _duplicates(paragraphs)[1],
    }
    for size in (2, 3, 4):
        found[f"top_{size}_gram_chars"] = _top_gram(words, size) if len(words) >= size else 0
    for size in (5, 6, 7, 8, 9, 10):
        found[f"duplicate_{size}_gram_chars"] = _repeated_grams(words, size)
    found.update(_c4(lines))
    return found
