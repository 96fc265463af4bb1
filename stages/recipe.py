"""Recipes: what a stage's output is a function of, and the digest that names it.

A recipe holds the stage, its version, its config and the digests of its inputs. An input digest is either the
digest of bytes (a source, a tokenizer file) or the recipe digest of another stage; as every stage is
deterministic, the digest of a recipe stands for the bytes it makes, and a plan can name every folder of a build
before anything has run.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys, no spaces, floats in their shortest form; NaN and infinities raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(value: Any) -> str:
    """The sha256, in hex, of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


@dataclass(frozen=True)
class Recipe:
    """What determines an artifact. `name` says whose it is (a source, a corpus, a mixture) and is part of the folder
    name only; everything that may change the output belongs into `config` or `inputs`."""

    stage: str
    version: int
    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """sha256 in hex over stage, version, config and inputs."""
        return digest_of(self.to_json())

    @property
    def folder(self) -> str:
        """The artifact's folder below the build root: `STAGE/NAME-DIGEST12`."""
        return f"{self.stage}/{self.name}-{self.digest[:12]}"

    def to_json(self) -> dict[str, Any]:
        """The recipe as plain data, the form that is hashed."""
        return {
            "stage": self.stage,
            "version": self.version,
            "config": dict(self.config),
            "inputs": dict(self.inputs),
        }
