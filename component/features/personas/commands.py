"""The command about personas: shows and chooses an agent's persona, and manages those that people
create. It uses no model, except to propose one that somebody describes.
"""

import re
from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from component import DEFAULT_AGENT
from component.commands import (
    SEVERAL_LINES,
    AnyCommand,
    Asking,
    CommandError,
    CommandResult,
    Outline,
    conversation_of,
    read_words,
)
from component.kernel.options import AGENT_CREATE
from component.kernel.persona_dialogue import PersonaDialogue, changed_persona
from component.kernel.skill_runs import Execute, request_of, run_skill
from component.memory_directory.layout import SessionKey
from component.personas.own_personas import OwnPersonas
from component.personas.packages import VERBS, Persona, PersonaError, exported, id_of
from component.personas.personas import Personas
from component.skills import Skill, View
from xep.jid import JID
from xep.stanza_error import StanzaError

_PROPOSED_NOT: Final = "You cannot propose personas here: the operator has not allowed it."
_HOW_TO_IMPORT: Final = "# A persona. To have it: /persona import, and this text after it.\n"


class Chosen(msgspec.Struct, frozen=True):
    """A persona in a list. `own` says that the caller has created it."""

    id: str
    name: str
    description: str
    active: bool
    icon: str = ""
    own: bool = False


class Exported(msgspec.Struct, frozen=True):
    """A persona as one text."""

    id: str
    toml: str


class PersonaParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the command.

    Args:
        persona: Persona to use; or list, reset (use none), create, edit, delete, export, import or
            cancel.
        name: Name of your own persona to create, edit, delete or export.
        description: With create, instead of a name: what the persona should do. The model writes it
            for everybody, and an admin has to approve it.
        role: With create and edit: who the persona is. If you leave this and the next two empty, I
            ask you in the chat; - removes the current text.
        style: With create and edit.
        rules: With create and edit.
        toml: With import: the text that export has printed.
    """

    persona: str = ""
    name: tuple[str, ...] = ()
    description: Annotated[str, SEVERAL_LINES] = ""
    role: Annotated[str, msgspec.Meta(title="Who it is"), SEVERAL_LINES] = ""
    style: Annotated[str, msgspec.Meta(title="How it speaks"), SEVERAL_LINES] = ""
    rules: Annotated[str, msgspec.Meta(title="Its rules"), SEVERAL_LINES] = ""
    toml: Annotated[str, msgspec.Meta(title="TOML"), SEVERAL_LINES] = ""


PERSONA = Outline(
    name="persona",
    title="Persona",
    about="choose my character: list, a name, reset, or create and a name or a description",
    params=PersonaParams,
    # A description is not split into words, because it may have apostrophes.
    verbatim={"import": "toml", "create": "name"},
    group="conversation",
)
_IN_WORDS: Final = msgspec.structs.replace(PERSONA, verbatim={})
_PARAM: Final = re.compile(r"(?:^|\s)(?:description|role|style|rules)=")
_MOST_WORDS: Final = 3
"""Words that a name has; more of them are a description."""


class PersonaProposals:
    """Proposes personas that people describe.

    Args:
        view: returns the skills that a principal sees.
        execute: runs a skill.
    """

    def __init__(self, view: Callable[[JID], View], execute: Execute) -> None:
        self._view = view
        self._execute = execute

    def may_propose(self, principal: JID | None) -> bool:
        """Whether a principal may propose personas."""
        return self._skill(principal) is not None

    def _skill(self, principal: JID | None) -> Skill | None:
        return None if principal is None else self._view(principal).get(AGENT_CREATE)

    async def propose(self, asking: Asking, description: str) -> CommandResult:
        """Propose what somebody describes. Raises CommandError."""
        skill = self._skill(asking.principal)
        if skill is None:
            raise CommandError(_PROPOSED_NOT, "description")
        json = msgspec.Raw(msgspec.json.encode({"description": description}))
        request = request_of(asking, skill, "persona", json=json)
        try:
            return await run_skill(self._execute, request, skill)
        except StanzaError as error:
            raise CommandError(error.text or f"{error.condition}.", "description") from None


class PersonaCommands:
    """The command about personas: those to choose from, and those that people create."""

    def __init__(
        self,
        personas: Personas,
        own: OwnPersonas,
        dialogue: PersonaDialogue,
        proposals: PersonaProposals,
    ) -> None:
        self._proposals = proposals
        self._personas = personas
        self._own = own
        self._dialogue = dialogue

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (PERSONA.done_by(self._persona),)

    async def _persona(self, asking: Asking, params: PersonaParams) -> CommandResult:
        key = conversation_of(asking, DEFAULT_AGENT)
        said = params.persona.strip()
        verb = said.casefold()
        if verb == "create":
            params = _read_create(params, self._proposals.may_propose(asking.principal))
        name = " ".join(" ".join(params.name).split())
        _check_together(verb, name, params)
        if params.description:
            return await self._proposals.propose(asking, params.description)
        try:
            match verb:
                case "":
                    return await self._show(key)
                case "list":
                    return await self._list(key)
                case "create":
                    self._check_own(asking)
                    return await self._create(key, name, params)
                case "edit":
                    return await self._edit(key, name, params)
                case "delete":
                    return await self._delete(key, name)
                case "export":
                    return await self._export(key, name)
                case "import":
                    return await self._import(key, params.toml)
                case "cancel":
                    asked = await self._dialogue.cancel(key)
                    return CommandResult("Cancelled." if asked else "There is nothing to cancel.")
                case _:
                    wanted = None if verb == "reset" else f"{said} {name}".strip()
                    chosen = await self._personas.choose(key, wanted)
        except PersonaError as error:
            blamed = "toml" if verb == "import" else "name" if verb in VERBS else "persona"
            raise CommandError(str(error), blamed) from None
        return CommandResult(f"I am now {_title(chosen)}.")

    async def _show(self, key: SessionKey) -> CommandResult:
        active = await self._personas.active(key)
        if active is None:
            return CommandResult("I am myself. /persona list shows who else I can be.")
        return CommandResult(f"I am {_title(active)}.")

    async def _list(self, key: SessionKey) -> CommandResult:
        active = await self._personas.active(key)
        found = [
            Chosen(
                id=each.id,
                name=each.name,
                description=each.description,
                active=active is not None and (active.id, active.own) == (each.id, each.own),
                icon=each.icon,
                own=each.own,
            )
            for each in await self._personas.list(key)
        ]
        if not found:
            more = " Send /persona create and a name to create one." if self._own.allowed else ""
            return CommandResult(f"There are no personas.{more}", ())
        return CommandResult("\n".join(("Personas:", *map(_line, found))), found)

    def _check_own(self, asking: Asking) -> None:
        """Raise PersonaError with how to describe a persona, if nobody has any of their own."""
        if not self._own.allowed and self._proposals.may_propose(asking.principal):
            raise PersonaError(
                f"Describe the persona in more than {_MOST_WORDS} words: I write it, and everybody"
                " can use it when an admin has approved it."
            )

    async def _create(self, key: SessionKey, name: str, params: PersonaParams) -> CommandResult:
        id_ = id_of(name)
        if await self._own.has(key, id_):
            raise PersonaError(
                f"You already have a persona {id_!r}. To change it, send /persona edit {id_}"
            )
        await self._own.may_make(key, id_)
        answers = _answers(params)
        if not answers:
            return CommandResult(await self._dialogue.begin(key, id_, name, edits=False))
        await self._own.save(key, changed_persona(None, id_, name, answers))
        return CommandResult(f"{name} is created. Send /persona {id_} to use it.")

    async def _edit(self, key: SessionKey, name: str, params: PersonaParams) -> CommandResult:
        before = await self._own.get(key, await self._own_id(key, name))
        answers = _answers(params)
        if not answers:
            return CommandResult(
                await self._dialogue.begin(key, before.id, before.name, edits=True)
            )
        await self._own.save(key, changed_persona(before, before.id, before.name, answers))
        return CommandResult(f"{before.name} is changed. Send /persona {before.id} to use it.")

    async def _delete(self, key: SessionKey, name: str) -> CommandResult:
        id_ = await self._own_id(key, name)
        active = await self._personas.active(key)
        if not await self._own.remove(key, id_):
            raise PersonaError(f"You have no persona {id_!r} of your own.")
        if active is None or not active.own or active.id != id_:
            return CommandResult(f"{id_} is deleted.")
        now = await self._personas.choose(key, None)
        return CommandResult(f"{id_} is deleted. I am now {_title(now)}.")

    async def _export(self, key: SessionKey, name: str) -> CommandResult:
        self._own.may_share()
        written = await self._own.get(key, await self._own_id(key, name))
        text = _HOW_TO_IMPORT + exported(written)
        return CommandResult(text, Exported(written.id, text))

    async def _import(self, key: SessionKey, toml: str) -> CommandResult:
        self._own.may_share()
        if not toml.strip():
            raise PersonaError("Put the text of the persona after the command: /persona import …")
        written = await self._own.read(toml)
        if await self._own.has(key, written.id):
            raise PersonaError(
                f"You already have a persona {written.id!r}. Send /persona delete {written.id}"
                " first."
            )
        await self._own.save(key, written)
        return CommandResult(f"{written.name} is imported. Send /persona {written.id} to use it.")

    async def _own_id(self, key: SessionKey, name: str) -> str:
        wanted = name.casefold()
        for each in await self._personas.list(key):
            if each.own and wanted in (each.id, each.name.casefold()):
                return each.id
        return id_of(name)


def _read_create(params: PersonaParams, proposes: bool) -> PersonaParams:
    """Return the parameters of a chat message, in which all that follows `create` is the name.

    With `proposes`, more words than a name has are a description. Raises CommandError.
    """
    if len(params.name) != 1:
        return params
    (text,) = params.name
    texts = params.role or params.style or params.rules or _PARAM.search(text)
    if proposes and not texts and len(text.split()) > _MOST_WORDS:
        return msgspec.structs.replace(params, name=(), description=text.strip())
    words = read_words(_IN_WORDS, f"create {text}")
    given = {
        key: value
        for key in PersonaParams.__struct_fields__
        if (value := getattr(words, key)) and key != "persona"
    }
    return msgspec.structs.replace(params, **({"name": ()} | given))


def _check_together(verb: str, name: str, params: PersonaParams) -> None:
    """Raise CommandError for parameters that cannot be combined, with the name of one."""
    if params.description and (verb != "create" or name):
        raise CommandError("description goes with create, and without a name.", "description")
    if not params.description and verb in ("create", "edit", "delete", "export") and not name:
        raise CommandError(f"Say which one: /persona {verb} study-buddy", "name")
    if verb in ("", "list", "reset", "import", "cancel") and name:
        raise CommandError(f"No name goes with {verb or 'nothing else'}.", "name")
    for param in ("role", "style", "rules"):
        if getattr(params, param) and (verb not in ("create", "edit") or params.description):
            raise CommandError(f"{param} goes with create or edit, and a name.", param)
    if params.toml and verb != "import":
        raise CommandError("toml goes with import.", "toml")


def _answers(params: PersonaParams) -> dict[str, str]:
    given = {
        "identity": params.role.strip(),
        "personality": params.style.strip(),
        "instructions": params.rules.strip(),
    }
    return {kind: text for kind, text in given.items() if text}


def _title(persona: Persona | None) -> str:
    return "myself again" if persona is None else f"{persona.icon} {persona.name}".strip()


def _line(row: Chosen) -> str:
    line = " ".join(("*" if row.active else "-", *filter(None, (row.icon, row.id))))
    yours = " (yours)" if row.own else ""
    return f"{line}{yours} - {row.description}" if row.description else f"{line}{yours}"
