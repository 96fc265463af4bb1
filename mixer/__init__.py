"""A mixture of a token store: the plan, the training order, the shards, and the manifest.

A mixture spec says what domains, which are sets of cells of the store, ask for. Here is a build by hand, in a folder
with the `corpus.yaml` and `mixture.yaml` of README.md; `mixer build` does the same.

>>> from pathlib import Path
>>> from mixer.build import load_mixture
>>> domains, corpus, base = load_mixture(Path("mixture.yaml"))
>>> [(leaf.name, leaf.cells, str(leaf.max_epochs)) for leaf in domains.leaves]
[('notes', ('notes',), '8'), ('web', ('web',), '4')]

Weights are exact shares, so the plan needs no data. It is integers, sequences of every domain in every phase, and the
order of training follows from them. (With the supply of a store, `plan_run` also keeps to the caps.)

>>> from mixer.plan import plan_run
>>> run = plan_run(domains, None)
>>> run.sequences, run.sequences_of("web"), run.sequences_of("notes")
(390, 273, 117)
>>> order = run.segments[0].plan.order()
>>> [order.names[i] for i in order.domains(0, 6)]
['web', 'notes', 'web', 'web', 'notes', 'web']

A build makes what is missing and returns the path of the manifest:

>>> from mixer.build import Build
>>> from mixer.cli.progress import PlainProgress
>>> from stages.engine import LocalEngine
>>> with LocalEngine(Path("build/logs"), workers=1, progress=PlainProgress()) as engine:
...     manifest = Build(Path("mixture.yaml"), Path("build"), Path("build/cache"), lambda: engine).run()
>>> manifest.name
'manifest.json'

The training data is Parquet, a row a sequence, in the order of training. Every row says which spans of which
documents it holds:

>>> import pyarrow.parquet as pq
>>> train = pq.read_table(manifest.parent / "train" / "00000.parquet")
>>> train.column_names
['input_ids', 'domain', 'position', 'pieces']
>>> train["domain"][:6].to_pylist() == [order.names[i] for i in order.domains(0, 6)]
True
>>> sum(piece["end"] - piece["start"] for piece in train["pieces"][0].as_py()) == domains.spec.sequence_length
True

A reader gives any sequence, from the shards or from the store, and batches for any number of ranks:

>>> import mixer.reader
>>> data = mixer.reader.open(manifest)
>>> len(data), data[0]["domain"], data[0]["input_ids"].shape
(390, 'web', (512,))
>>> from_store = mixer.reader.open(manifest, source="store")
>>> bool((data[7]["input_ids"] == from_store[7]["input_ids"]).all())
True
>>> batch = next(data.batches(8, rank=1, world_size=2, start=3))
>>> batch["position"].tolist()
[28, 29, 30, 31]

Anybody can ask the manifest what was asked, planned and realized, why a document is in, what a training step saw, and
whether all of it is true:

>>> from mixer.manifest import read_manifest
>>> web = read_manifest(manifest)["domains"]["web"]
>>> web["asked"]["weight"], web["planned"]["sequences"], web["realized"]["sequences"]
('7/10', 273, 273)
>>> from mixer.explain import explain
>>> found = explain(manifest, train["pieces"][0][0]["id"].as_py())
>>> found["occurrences"][0]["kept"], found["sequences"][0]["position"]
(True, 0)
>>> from mixer.trace import trace_step
>>> step = trace_step(manifest, step=3, batch_size=8)
>>> step["first"], step["domains"]["web"]["sequences"], step["phases"]
(24, 5, ['main'])
>>> from mixer.verify import verify
>>> checked, wrong = verify(manifest)
>>> wrong
[]
"""
