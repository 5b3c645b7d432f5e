"""The command about personas: shows and chooses an agent's persona, and manages those that people
create. It uses no model.
"""

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
)
from component.kernel.persona_dialogue import PersonaDialogue, changed_persona
from component.memory_directory.layout import SessionKey
from component.personas.own_personas import OwnPersonas
from component.personas.packages import VERBS, Persona, PersonaError, exported, id_of
from component.personas.personas import Personas

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
        role: With create and edit: who the persona is. If you leave this and the next two empty, I
            ask you in the chat; - removes the current text.
        style: With create and edit.
        rules: With create and edit.
        toml: With import: the text that export has printed.
    """

    persona: str = ""
    name: tuple[str, ...] = ()
    role: Annotated[str, msgspec.Meta(title="Who it is"), SEVERAL_LINES] = ""
    style: Annotated[str, msgspec.Meta(title="How it speaks"), SEVERAL_LINES] = ""
    rules: Annotated[str, msgspec.Meta(title="Its rules"), SEVERAL_LINES] = ""
    toml: Annotated[str, msgspec.Meta(title="TOML"), SEVERAL_LINES] = ""


PERSONA = Outline(
    name="persona",
    title="Persona",
    about="choose my character: list, a name, reset, or create and a name",
    params=PersonaParams,
    verbatim={"import": "toml"},
    group="conversation",
)


class PersonaCommands:
    """The command about personas: those to choose from, and those that people create."""

    def __init__(self, personas: Personas, own: OwnPersonas, dialogue: PersonaDialogue) -> None:
        self._personas = personas
        self._own = own
        self._dialogue = dialogue

    def commands(self) -> tuple[AnyCommand, ...]:
        """Return all of them."""
        return (PERSONA.done_by(self._persona),)

    async def _persona(self, asking: Asking, params: PersonaParams) -> CommandResult:
        key = conversation_of(asking, DEFAULT_AGENT)
        said = params.persona.strip()
        verb, name = said.casefold(), " ".join(" ".join(params.name).split())
        _check_together(verb, name, params)
        try:
            match verb:
                case "":
                    return await self._show(key)
                case "list":
                    return await self._list(key)
                case "create":
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


def _check_together(verb: str, name: str, params: PersonaParams) -> None:
    """Raise CommandError for parameters that cannot be combined, with the name of one."""
    if verb in ("create", "edit", "delete", "export") and not name:
        raise CommandError(f"Say which one: /persona {verb} study-buddy", "name")
    if verb in ("", "list", "reset", "import", "cancel") and name:
        raise CommandError(f"No name goes with {verb or 'nothing else'}.", "name")
    for param in ("role", "style", "rules"):
        if getattr(params, param) and verb not in ("create", "edit"):
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
