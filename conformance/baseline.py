"""Expected failures: a file of requirements that a target is known to violate.

    [[expected]]
    id = "EXE-012"
    reason = "files are not served yet, see issue 34"

An entry whose requirement holds is a failure too, so that the file stays up to date.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path


def read_baseline(path: Path) -> dict[str, str]:
    """Return the reasons by requirement.

    Raises:
        ValueError: the file is invalid; the message says where.
        OSError: it cannot be read.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: this is no TOML: {error}") from None
    unknown = set(data) - {"expected"}
    if unknown:
        raise ValueError(f"{path}: only [[expected]] is known here, not {min(unknown)}.")
    entries = data.get("expected", [])
    if not isinstance(entries, list):
        text = f"{path}: expected is written [[expected]], once per requirement."
        raise ValueError(text)  # noqa: TRY004 - it is the file that is wrong, not a type
    found: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        row = entry if isinstance(entry, dict) else {}
        id_, reason = row.get("id"), row.get("reason")
        if not isinstance(id_, str) or not isinstance(reason, str) or not reason:
            raise ValueError(f"{path}: entry {number} needs an id and a reason, both texts.")
        if id_ in found:
            raise ValueError(f"{path}: {id_} stands there twice.")
        found[id_] = reason
    return found


def unknown_ids(baseline: Mapping[str, str], known: Mapping[str, object]) -> tuple[str, ...]:
    """Return the entries that name no requirement of this version of the specification."""
    return tuple([id_ for id_ in baseline if id_ not in known])
