"""Documents in, token store out.

A corpus spec names sources, filters and a tokenizer; the line turns them into a token store, one stage after the
other, and knows nothing of mixtures. Here is the line by hand, in a folder with the `corpus.yaml` of README.md:

>>> from pathlib import Path
>>> from stages.corpus import CorpusSpec
>>> from stages.corpus_plan import plan_corpus
>>> from stages.line import Line
>>> from stages.specfile import load_spec
>>> spec = load_spec(Path("corpus.yaml"), CorpusSpec)
>>> sorted(spec.sources)
['notes', 'web']

Planning lists the files, digests their bytes, and knows every recipe before a stage has run. The digest of a recipe
names the folder of its artifact:

>>> plan = plan_corpus(spec, base=Path("."), cache=Path("build/cache"))
>>> [recipe.stage for recipe in plan.recipes() if recipe.name in ("web", "mine")]
['ingest', 'metrics', 'filters', 'tokenize', 'signatures', 'exact_duplicates', 'near_duplicates', 'store']
>>> plan.sources["web"].ingest.folder == f"ingest/web-{plan.sources['web'].ingest.digest[:12]}"
True

A stage hands tasks to an engine, and an engine is anything that runs them; `stages.engine.LocalEngine` does it with
datatrove and worker processes. Each task writes its own shards and commits them, so this one is enough:

>>> class Here:
...     def run(self, stage, log, tasks):
...         for task in tasks:
...             task.work(task)
>>> artifacts = Line(plan, Path("build"), Here).run(until="store")

Documents are written once, and every later stage adds columns to them: same shards, same rows, same order.

>>> from stages.documents import document_shards, read_columns, shard_name
>>> web = plan.sources["web"]
>>> documents = artifacts[web.ingest.digest]
>>> shard = document_shards(documents)[0]
>>> read_columns(documents.path(shard, ".parquet")).column_names
['id', 'text', 'bytes', 'source_id', 'file', 'row']
>>> decided = artifacts[web.filters.recipe.digest].folder / f"{shard_name(shard)}.parquet"
>>> read_columns(decided, ["kept"], rows=shard.rows).num_rows == shard.rows
True

The store has one folder a cell. A part of it maps as it is: an index in the order of the ids, and the tokens.

>>> from stages.store import cell_parts, open_part
>>> store = artifacts[plan.store.digest]
>>> part = open_part(store, cell_parts(store, "web")[0])
>>> part.index.column_names
['id', 'source', 'offset', 'length', 'bytes']
>>> bool(part.length.sum() == len(part.tokens))
True

Running the line again makes nothing: every artifact is found by its recipe.

>>> again = Line(plan, Path("build"), lambda: None).run()
>>> again.keys() == artifacts.keys()
True
"""
