"""Side-by-side measurements on real text. Never part of the tests; each module writes `results/NAME.json`."""
