"""Artifacts that a task shows while they grow (specification, "Artifacts Before the End")."""

from collections.abc import Iterable, Sequence

import msgspec

from xep.fluux_agent.execute import Output, Result


class _Artifact(msgspec.Struct):
    type: str
    texts: list[str]
    ended: bool = False
    said: int = 0
    """How many parts this life of the run has given; those recorded before are not shown again."""


class Parts:
    """The parts of one task, those of its earlier lives included.

    Args:
        recorded: the parts that are on disk, in order.
        most_bytes: how much text they may have together.
    """

    def __init__(self, recorded: Iterable[Output], most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._artifacts: dict[str, _Artifact] = {}
        self._shown: list[Output] = []
        for part in recorded:
            self.shown(part)

    @property
    def all(self) -> Sequence[Output]:
        """All parts in the order in which they were shown."""
        return tuple(self._shown)

    def next(self, name: str, text: str, media_type: str, *, last: bool) -> Output | None:
        """The next part of an artifact; None if an earlier life of the run has shown it.

        Raises ValueError, in a sentence for the skill's author.
        """
        artifact = self._artifacts.get(name)
        if artifact is None:
            artifact = _Artifact(media_type, [])
        number = artifact.said
        artifact.said += 1
        if number < len(artifact.texts):
            return None
        if artifact.ended:
            raise ValueError(f"the artifact {name!r} has had its last part")
        if artifact.type != media_type:
            raise ValueError(f"the artifact {name!r} is {artifact.type}, not {media_type}")
        if self._bytes + len(text.encode()) > self._most_bytes:
            artifact.said -= 1
            raise ValueError(f"the artifacts of one task may have {self._most_bytes} bytes at most")
        self._artifacts[name] = artifact
        return Output(name=name, type=media_type, part=number, last=last, text=text)

    def shown(self, part: Output) -> None:
        """A part is kept."""
        artifact = self._artifacts.setdefault(part.name, _Artifact(part.type, []))
        artifact.texts.append(part.text)
        artifact.ended = part.last
        self._bytes += len(part.text.encode())
        self._shown.append(part)

    def completed(self, result: Result) -> Result:
        """The result with every artifact whole (ART-004); those returned as well are there once."""
        whole = {
            name: Output(name=name, type=artifact.type, text="".join(artifact.texts))
            for name, artifact in self._artifacts.items()
        }
        given = tuple([one for one in result.outputs if whole.get(one.name) != one])
        return msgspec.structs.replace(result, outputs=(*whole.values(), *given))
