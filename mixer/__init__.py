"""A mixture of a token store: the plan, the training order, the shards, and the manifest.

A mixture spec gives weights to domains, which are sets of cells of the store. Here is a build by hand, in a folder
with the `corpus.yaml` and `mixture.yaml` of README.md; `mixer build` does the same.

>>> from pathlib import Path
>>> from mixer.spec import load_mixture
>>> spec, corpus, base = load_mixture(Path("mixture.yaml"))
>>> {name: str(domain.weight) for name, domain in spec.domains.items()}
{'web': '7/10', 'notes': '3/10'}

The plan needs no data. It is integers, sequences of every domain in every phase, and so is the order of training:

>>> from mixer.plan import plan_mixture
>>> plan = plan_mixture(spec)
>>> plan.sequences, plan.planned("web"), plan.planned("notes")
(390, 273, 117)
>>> order = plan.order()
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
>>> sum(piece["end"] - piece["start"] for piece in train["pieces"][0].as_py()) == spec.sequence_length
True

Anybody can ask the manifest what was asked, planned and realized, why a document is in, and whether all of it is true:

>>> from mixer.manifest import read_manifest
>>> web = read_manifest(manifest)["domains"]["web"]
>>> web["asked"]["weight"], web["planned"]["sequences"], web["realized"]["sequences"]
('7/10', 273, 273)
>>> from mixer.explain import explain
>>> found = explain(manifest, train["pieces"][0][0]["id"].as_py())
>>> found["occurrences"][0]["kept"], found["sequences"][0]["position"]
(True, 0)
>>> from mixer.verify import verify
>>> checked, wrong = verify(manifest)
>>> wrong
[]
"""
