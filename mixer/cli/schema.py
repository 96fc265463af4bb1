"""`mixer schema`."""

import json

import click


@click.command()
@click.argument("kind", type=click.Choice(["corpus", "mixture", "manifest"]))
def schema(kind: str) -> None:
    """Print the JSON Schema of a corpus spec, a mixture spec or a manifest, for editors and checkers.

    \b
    Example:
      mixer schema mixture > mixture.schema.json
    """
    from pydantic import BaseModel

    from mixer.manifest import Manifest
    from mixer.spec import MixtureSpec
    from stages.corpus import CorpusSpec

    models: dict[str, type[BaseModel]] = {"corpus": CorpusSpec, "mixture": MixtureSpec, "manifest": Manifest}
    data = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | models[kind].model_json_schema()
    click.echo(json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False))
