"""Adds a health check to an image that umoci has made.

The configuration of an OCI image has none, so umoci cannot set it. Docker reads its own field
there, and other programs ignore it.

Usage: python packaging/health_check.py LAYOUT TAG
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

SECOND = 1_000_000_000
HEALTH_CHECK = {
    "Test": ["CMD", "/usr/bin/xmpp-agent", "health", "--connected"],
    "Interval": 30 * SECOND,
    "Timeout": 15 * SECOND,
    "StartPeriod": 60 * SECOND,
    "Retries": 3,
}


def add(layout: Path, tag: str) -> None:
    """Replace the configuration and what refers to it; umoci removes the old ones as garbage."""
    index = json.loads((layout / "index.json").read_bytes())
    (entry,) = (
        each
        for each in index["manifests"]
        if each["annotations"]["org.opencontainers.image.ref.name"] == tag
    )
    manifest = read(layout, entry)
    config = read(layout, manifest["config"])
    config["config"]["Healthcheck"] = HEALTH_CHECK
    manifest["config"] |= store(layout, config)
    entry |= store(layout, manifest)
    (layout / "index.json").write_text(json.dumps(index))


def read(layout: Path, descriptor: dict[str, Any]) -> Any:
    """Return the object that a descriptor refers to."""
    return json.loads(blob(layout, descriptor["digest"]).read_bytes())


def store(layout: Path, value: Any) -> dict[str, Any]:
    """Store an object; return its digest and size."""
    data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    blob(layout, digest).write_bytes(data)
    return {"digest": digest, "size": len(data)}


def blob(layout: Path, digest: str) -> Path:
    """Return the file of a digest."""
    algorithm, _, value = digest.partition(":")
    return layout / "blobs" / algorithm / value


if __name__ == "__main__":
    add(Path(sys.argv[1]), sys.argv[2])
