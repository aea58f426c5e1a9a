"""The committed CRDs and the inventory's schema: written from the models, or compared with them."""

from pathlib import Path

from gpugrant_hack.say import Trouble


def generated() -> dict[str, str]:
    """File name to text. Raises Trouble where the project is not installed."""
    try:
        from gpugrant_crds import inventory, schema
    except ImportError as error:
        raise Trouble(f"the models can't be read ({error}): run hack/setup first") from error
    return {**schema.manifests(), inventory.SCHEMA_FILE: inventory.json_schema()}


def write(folder: Path, wanted: dict[str, str]) -> list[str]:
    """Makes the folder's YAML and JSON files those that are wanted; the names of those that changed."""
    changed = stale(folder, wanted)
    for name in changed:
        if name in wanted:
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()
    return changed


def stale(folder: Path, wanted: dict[str, str]) -> list[str]:
    """The names of files that are missing, differ, or should not be there."""
    there = {path.name: path.read_text() for path in folder.iterdir() if path.suffix in (".yaml", ".json")}
    return sorted(name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name))
