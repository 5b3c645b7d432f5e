"""What agents, skills, tasks, questions and confirmations are, independent of any XMPP library."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from xep.fluux_agent.execute import State, Usage
from xep.fluux_agent.plan import StepKind, StepState
from xep.fluux_agent.skills import Annotations
from xep.hashes import Hash
from xmpp_agent_client.errors import AgentError

ENDED: Final = frozenset({"completed", "failed", "rejected", "cancelled"})
"""The final states of a task."""


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says about itself.

    Attributes:
        address: its JID.
        name: its name for people.
        features: the namespaces that it supports.
        details: the fields of its form (XEP-0128), such as ``software`` and ``replay_seconds``.
    """

    address: str
    name: str
    features: frozenset[str] = frozenset()
    details: dict[str, str] = {}


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a skill. ``type`` is a type of JSON Schema, or ``any``."""

    name: str
    type: str = "string"
    required: bool = False
    description: str = ""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill that you may use.

    Attributes:
        name: what you execute.
        version: its version, if it has one.
        title: a short name for people; the name if there is none.
        description: its purpose.
        tags: words that it is found by.
        examples: requests in a person's words.
        parameters: what it takes.
        annotations: the effects that it claims to have.
        duration_ms: the typical duration, if that is known.
        input_schema: the JSON Schema of its parameters, if it was requested.
        output_schema: that of its JSON output, likewise.
    """

    name: str
    version: str | None = None
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    annotations: Annotations = Annotations()
    duration_ms: int | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None


class File(msgspec.Struct, frozen=True, kw_only=True):
    """An output by reference: its addresses, and what they are expected to return."""

    urls: tuple[str, ...]
    name: str | None = None
    media_type: str | None = None
    size: int | None = None
    hashes: tuple[Hash, ...] = ()


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact: a text of a media type, or a file.

    ``complete`` is False while the task still writes it; ``part`` is then the number of the last
    part, from 0.
    """

    name: str
    type: str = "text/plain"
    text: str = ""
    file: File | None = None
    complete: bool = True
    part: int | None = None

    def json(self) -> Any:
        """Return the value of a JSON output. Raises ValueError if the text is not JSON."""
        return msgspec.json.decode(self.text)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a skill returned. ``is_error`` means that it ran and could not do what was requested."""

    skill: str
    outputs: tuple[Output, ...] = ()
    is_error: bool = False
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """The texts of all outputs, each on lines of its own."""
        return "\n".join([output.text for output in self.outputs if output.file is None])


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The current step, and the part of the work that is done, from 0 to 1, if that is known."""

    text: str = ""
    fraction: float | None = None


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a plan.

    Attributes:
        id: its id in the document of the plan.
        title: what it does, for people.
        kind: ``call``, ``agent`` or ``ask``.
        state: ``waiting``, ``running``, ``done``, ``skipped``, ``failed``, ``unknown`` (it was
            interrupted, and may have had an effect), or ``cancelled`` (with the plan).
        task: the id of its task, once it has begun.
        after: the ids of the steps and the names of the groups that it waits for.
        group: the name of its group, if it is in one.
        otherwise: the id of the step that runs in its place if it fails.
    """

    id: str
    title: str
    kind: StepKind
    state: StepState
    task: str | None = None
    after: tuple[str, ...] = ()
    group: str | None = None
    otherwise: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How the steps of a task stand that is a plan.

    Attributes:
        title: its title.
        revision: the number of its document, from 1, which a revision names.
        digest: a digest of its document; equal ones belong to equal documents.
        steps: its steps, in the order of the document.
        paused: why no step begins at present; None if they do.
    """

    title: str
    revision: int
    digest: str
    steps: tuple[PlanStep, ...]
    paused: str | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a task. The answer is an object that matches ``schema``.

    Attributes:
        agent: the address of the agent, to which the answer goes.
        task: the id of the task.
        id: the id of the question.
        revision: the revision of the task that asked.
        text: the question in words.
        schema: the JSON Schema of the answer.
        expires: after this time no answer counts.
    """

    agent: str
    task: str
    id: str
    revision: int
    text: str
    schema: dict[str, Any]
    expires: datetime | None = None


class StandingOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The offer of a standing approval: equal actions may run without a question.

    Attributes:
        text: what may be done without a question, in a sentence. Show it to the person.
        until: until when.
        uses: how often.
        free: the names of the parameters that may differ.
        hash: the digest over all of it; the decision repeats it.
        genuine: whether that is the digest of what is shown here. If it is not True, do not accept.
    """

    text: str
    until: datetime
    uses: int
    free: tuple[str, ...] = ()
    hash: Hash | None = None
    genuine: bool = False


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a person: may this action run?

    Show the person the action and its parameters rather than the text (SEC-004).

    Attributes:
        agent: the address that asked, to which the decision goes.
        id: the id of the confirmation.
        task: the id of the task that waits.
        acting: the agent that will act, if it is not the one that asked.
        principal: for whom the action would run.
        skill: the name of the skill.
        version: its version.
        params: all parameters, as the skill would get them.
        risk: ``low``, ``medium`` or ``high``, if it was rated.
        text: the question in words; empty if it came with the state of a task.
        hash: the digest over all of it; the decision repeats it.
        genuine: whether that is the digest of what is shown here. If it is False, do not approve.
            None if it cannot be checked, as when another agent passed the question on.
        expires: after this time no decision counts.
        standing: what the answer can allow beside this action; None for nothing.
    """

    agent: str
    id: str
    task: str | None = None
    acting: str | None = None
    principal: str | None = None
    skill: str
    version: str | None = None
    params: dict[str, Any] = {}
    risk: str | None = None
    text: str = ""
    hash: Hash | None = None
    genuine: bool | None = None
    expires: datetime | None = None
    standing: StandingOffer | None = None


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task at one revision.

    Attributes:
        agent: the address of the agent that has it.
        id: its id, which is known to you and the agent only.
        skill: the skill that runs.
        state: ``accepted``, ``running``, ``input-required``, ``cancelling``, or one of `ENDED`.
        revision: the number of changes since it was accepted.
        created: when it was accepted.
        updated: when it changed.
        retain_until: until when the agent stores it, at least.
        deadline: when its result becomes useless.
        poll_after: the number of seconds after which asking for it makes sense.
        request: the id of the execute request.
        context: groups tasks.
        thread: the thread of messages about it.
        progress: how far it is.
        plan: its steps, if it is a plan.
        outputs: the artifacts before the end, each as far as it is known.
        question: what it asks you.
        confirmation: what has to be confirmed. Whether you are asked is not part of the state.
        result: its result, if it is ``completed``.
        error: why there is none, if it ended otherwise.
    """

    agent: str
    id: str
    skill: str = ""
    state: State = "accepted"
    revision: int = 0
    created: datetime | None = None
    updated: datetime | None = None
    retain_until: datetime | None = None
    deadline: datetime | None = None
    poll_after: int | None = None
    request: str | None = None
    context: str | None = None
    thread: str | None = None
    progress: Progress | None = None
    plan: Plan | None = None
    outputs: tuple[Output, ...] = ()
    question: Question | None = None
    confirmation: Confirmation | None = None
    result: Result | None = None
    error: AgentError | None = None

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ENDED


class _Text(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def lang(self) -> str | None: ...


def text_in(texts: Sequence[_Text], lang: str) -> str:
    """Return the text in a language, else the one without a language, else the first; or ""."""
    best = {one.lang: one.text for one in reversed(texts)}
    return best.get(lang) or best.get(None) or (texts[0].text if texts else "")
