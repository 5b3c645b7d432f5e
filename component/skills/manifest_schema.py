"""Prints the JSON Schema of manifests: `python -m component.skills.manifest_schema`."""

import json

from component.skills.manifest import json_schema


def text() -> str:
    """Return `protocol_schemas/skill.schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(text(), end="")  # noqa: T201 - its purpose
