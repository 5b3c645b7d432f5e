"""The tools that one model is offered: as it takes them, and without those that it refuses.

What an API takes is known of the dialects, and learned from its refusals: how many tools, how long
a description may be, which keywords. A tool that a refusal names is not offered any more, so that
one tool of one server does not make every message fail.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import structlog

from component.models.catalog import ModelTarget
from component.models.faults import Fault, without_key
from component.models.messages import ModelMessage
from component.models.protocol import ModelRequest, Tool
from component.models.tool_schemas import Adapted, Keywords, ToolNames, adapt
from component.private import open_private

_log = structlog.get_logger("component.models")

_MOST_CACHED: Final = 1024
_OPENAI_TOOLS: Final = 128
_OPENAI_DESCRIPTION: Final = 1024
_GOOGLE: Final = (".googleapis.com",)
_GEMINI: Final = re.compile(r"\bgemini\b", re.IGNORECASE)
_WORD: Final = re.compile(r"\w{3,}")
_LONGEST_REASON: Final = 300

_FIELD_OF_MESSAGES: Final = re.compile(r"(messages|input|contents)\b")
_INDEX: Final = (
    re.compile(r"function_?declarations\[(\d{1,4})\]", re.IGNORECASE),
    re.compile(
        r"\btools?(?:\[|\.|\", ?|'?, | -> | → |/)(\d{1,4})\b(?!\]?\.function_?decl)", re.IGNORECASE
    ),
)
_ABOUT_TOOLS: Final = re.compile(r"\b(tools?|functions?)\b|schema|grammar", re.IGNORECASE)
# A call in the conversation, and not the definition of the tool.
_ABOUT_CALL: Final = re.compile(
    r"\b(function|tool)[ _-]?calls?\b(?!\w)|tool_use|tool_result|tool_call_id", re.IGNORECASE
)
_ABOUT_SCHEMA: Final = re.compile(
    r"\b(tools?|functions?)\b.{0,120}(schema|parameters)|schema conversion failed"
    r"|failed to parse grammar|input_schema|function_declarations|schema.{0,60}\b(tool|function)",
    re.IGNORECASE | re.DOTALL,
)
_ABOUT_ANSWER: Final = re.compile(r"response_format|text\.format|output_config", re.IGNORECASE)
_THINGS: Final = r"(?:tools|functions|function declarations)"
_NO_LENGTH: Final = r"(?!\d| ?(?:characters|chars|tokens|bytes))"
_TOO_MANY: Final = (
    re.compile(
        rf"\b{_THINGS}['\"`]?(?![\[.]\d)[^\[]{{0,80}}?(?:max(?!_)\w*|at most|limit|up to)"
        rf"[^\d\[]{{0,60}}(\d{{1,4}})\b{_NO_LENGTH}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?:max\w*|at most|limit of|up to|more than)[^\d\[]{{0,30}}(\d{{1,4}}) {_THINGS}",
        re.IGNORECASE,
    ),
    re.compile(rf"too many {_THINGS}", re.IGNORECASE),
)
_LENGTH: Final = re.compile(r"(?:max\w*|at most|limit)[^\d\[]{0,40}(\d{1,6})\b", re.IGNORECASE)
_NO_TOOLS: Final = re.compile(
    r"(does ?n[o']t|do not|cannot|not) support(ed)?\b.{0,30}\b(tools?|functions?)( use| calls?"
    r"| calling)?\b|\b(tools?|functions?)( use| calls?| calling)? (is|are) not supported"
    r"|(unknown|unsupported|unrecognized|unexpected)[^.]{0,40}['\"`]?\btools['\"`]?(?![\[.]\d)"
    r"|\btools['\"`]?: extra inputs|support tool use|enable-auto-tool-choice",
    re.IGNORECASE,
)


class RefusedTool(msgspec.Struct, frozen=True):
    """A tool that a model is not offered any more, and what its provider says about it."""

    tool: str
    model: str
    url: str
    reason: str


class ToolProfile(msgspec.Struct, frozen=True):
    """What an API takes of tools: how many at most, how many characters of a description, and which
    schemas. None stands for no maximum.
    """

    tools: int | None = None
    description: int | None = None
    keywords: Keywords = "all"


def tool_profile_of(target: ModelTarget) -> ToolProfile:
    """Return what the API of a model takes, as far as that is known.

    docs/reference/providers.md has a table.
    """
    provider = target.choice.provider
    if _GEMINI.search(target.choice.model) or (
        (urlsplit(target.base_url).hostname or "").endswith(_GOOGLE)
    ):
        return ToolProfile(_OPENAI_TOOLS, _OPENAI_DESCRIPTION, "plain")
    if provider == "ollama":
        return ToolProfile(keywords="plain")
    if provider in ("llamacpp", "local"):
        return ToolProfile(keywords="typed")
    if provider == "vllm" or target.dialect == "messages":
        return ToolProfile()
    return ToolProfile(_OPENAI_TOOLS, _OPENAI_DESCRIPTION)


class OfferedTools:
    """The tools of one model. `refused` is called with each tool that is left out from now on."""

    def __init__(
        self, target: ModelTarget, refused: Callable[[RefusedTool], None] = lambda _refused: None
    ) -> None:
        self._target = target
        self._profile = tool_profile_of(target)
        self._refused = refused
        self._left_out: set[tuple[str, str, bytes]] = set()
        self._adapted: dict[tuple[str, str, bytes], Adapted] = {}
        self._told: tuple[int, int] | None = None

    def offer(self, request: ModelRequest) -> tuple[ModelRequest, ToolNames]:
        """Return the request with the tools as the model takes them, and their names."""
        tools = request.tools
        if self._left_out:
            tools = tuple([tool for tool in tools if _key(tool) not in self._left_out])
        most = self._profile.tools
        if most is not None and len(tools) > most:
            self._tell(len(tools), most)
            tools = chosen(tools, most, request.messages)
        adapted = [(tool, self._adapt(tool)) for tool in tools]
        renamed = {tool.name: one.renamed for tool, one in adapted if one.renamed is not None}
        offered = tuple([self._form(tool, one) for tool, one in adapted])
        if offered != request.tools:
            choice = request.tool_choice if offered else "auto"
            request = msgspec.structs.replace(request, tools=offered, tool_choice=choice)
        return request, ToolNames([tool.name for tool in tools], renamed)

    def learn(self, fault: Fault, offered: ModelRequest, request: ModelRequest) -> bool:
        """Learn from a refusal what the model does not take; False if that is nothing new.

        `offered` is the refused request, as `offer` has returned it; `request` is the same with the
        tools as they are.
        """
        if (
            not offered.tools
            or _FIELD_OF_MESSAGES.match(fault.field)
            or _ABOUT_ANSWER.search(fault.message)
            or refuses_all(fault)
        ):
            return False
        about = f"{fault.field} {fault.message}"
        if (fewer := self._fewer(fault, about, len(offered.tools))) is not None:
            self._profile = msgspec.structs.replace(self._profile, tools=fewer)
            return True
        named = _named(fault, about, offered)
        if named is not None and (shorter := self._shorter(about, named)) is not None:
            self._profile = msgspec.structs.replace(self._profile, description=shorter)
            return True
        if named is not None:
            return self._leave_out(named.name, fault, request)
        is_schema = _ABOUT_SCHEMA.search(about) and not _ABOUT_CALL.search(about)
        if is_schema and self._profile.keywords != "plain":
            self._profile = msgspec.structs.replace(self._profile, keywords="plain")
            self._adapted.clear()
            _log.warning(
                "the model takes simple schemas of tools only",
                model=self._target.choice.model,
                reason=self._reason(fault),
            )
            return True
        return False

    def _leave_out(self, name: str, fault: Fault, request: ModelRequest) -> bool:
        for tool in request.tools:
            if tool.name == name and _key(tool) not in self._left_out:
                self._left_out.add(_key(tool))
                where = self._target.where
                refused = RefusedTool(name, where.model, where.url, self._reason(fault))
                _log.warning(
                    "the model refuses a tool, which is not offered to it any more",
                    **msgspec.structs.asdict(refused),
                )
                self._refused(refused)
                return True
        return False

    def _reason(self, fault: Fault) -> str:
        key = self._target.where.key
        return without_key(fault.message, key)[:_LONGEST_REASON]

    def _fewer(self, fault: Fault, about: str, count: int) -> int | None:
        for pattern in _TOO_MANY:
            found = pattern.search(about)
            if found is not None:
                number = int(found[1]) if pattern.groups else count // 2
                return number if 0 < number < count else None
        if fault.field == "tools" and "array_above_max_length" in fault.codes:
            return count // 2 or None
        return None

    def _shorter(self, about: str, tool: Tool) -> int | None:
        found = _LENGTH.search(about)
        if found is None or "description" not in about:
            return None
        return number if 0 < (number := int(found[1])) < len(tool.description) else None

    def _adapt(self, tool: Tool) -> Adapted:
        key = _key(tool)
        found = self._adapted.get(key)
        if found is None:
            if len(self._adapted) >= _MOST_CACHED:
                self._adapted.clear()
            found = self._adapted[key] = adapt(tool.parameters, self._profile.keywords)
        return found

    def _form(self, tool: Tool, adapted: Adapted) -> Tool:
        description = shortened_description(tool.description, self._profile.description)
        if adapted.parameters is tool.parameters and description == tool.description:
            return tool
        return msgspec.structs.replace(tool, description=description, parameters=adapted.parameters)

    def _tell(self, count: int, most: int) -> None:
        if self._told != (count, most):
            self._told = (count, most)
            _log.warning(
                "the model takes fewer tools than there are; those called before and those that"
                " match the message are offered",
                model=self._target.choice.model,
                there_are=count,
                offered=most,
            )


def refuses_all(fault: Fault) -> bool:
    """Whether the model takes no tools at all."""
    about = f"{fault.field} {fault.message}"
    return _NO_TOOLS.search(about) is not None and not any(one.search(about) for one in _INDEX)


def chosen(tools: Sequence[Tool], most: int, messages: Sequence[ModelMessage]) -> tuple[Tool, ...]:
    """Choose so many tools: those that the conversation has called, then those of which the latest
    message of a person says the most words, then those that are not optional, in their order.

    The order of the tools stays, so that the beginning of a prompt does.
    """
    called = {call.name for message in messages for call in message.tool_calls}
    said = next((each.text for each in reversed(messages) if each.role == "user"), "")
    words = {word.casefold() for word in _WORD.findall(said.replace("_", " "))}

    def rank(at: int) -> tuple[bool, int, bool, int]:
        tool = tools[at]
        text = f"{tool.name} {tool.description}".replace("_", " ").casefold()
        return (
            tool.name not in called,
            -len(words.intersection(_WORD.findall(text))),
            tool.optional,
            at,
        )

    kept = set(sorted(range(len(tools)), key=rank)[:most])
    return tuple([tool for at, tool in enumerate(tools) if at in kept])


def shortened_description(description: str, most: int | None) -> str:
    """Shorten a description to so many characters, after a word."""
    if most is None or len(description) <= most:
        return description
    kept = description[: max(0, most - 2)]
    return f"{kept.rpartition(' ')[0] or kept} …"[:most]


def _named(fault: Fault, about: str, offered: ModelRequest) -> Tool | None:
    """The tool that a refusal is about: by its index, or by its name."""
    for pattern in _INDEX:
        found = pattern.search(about)
        if found is not None and int(found[1]) < len(offered.tools):
            return offered.tools[int(found[1])]
    if not _ABOUT_TOOLS.search(about) or _ABOUT_CALL.search(about):
        return None
    names = ToolNames(tool.name for tool in offered.tools)
    matching = []
    for tool in offered.tools:
        name = re.escape(names.theirs(tool.name))
        # A short name is a word that may be there by chance: it must be called one.
        marked = rf"\b(function|tool)s?( named?| name| schema)?[ :=]{{0,3}}['\"`“]{name}['\"`”]"
        whole = rf"(?<![\w-]){name}(?![\w-])" if re.search(r"[_\d-]", name) else marked
        if re.search(marked, about, re.IGNORECASE) or re.search(whole, about):
            matching.append(tool)
    return max(matching, key=lambda tool: len(tool.name), default=None)


def _key(tool: Tool) -> tuple[str, str, bytes]:
    """A tool with its definition: a changed one is offered again."""
    return tool.name, tool.description, bytes(tool.parameters)


_NAME: Final = "refused-tools.json"
_MOST: Final = 1000


class RefusedTools:
    """The tools that models have refused since the service has started.

    Args:
        directory: the data directory, for one file; that of an earlier run is replaced.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _NAME
        self._found: dict[tuple[str, str, str], RefusedTool] = {}
        if self._path.exists():
            self._write()

    def add(self, refused: RefusedTool) -> None:
        """Add a tool. A file that cannot be written is reported in the log."""
        if len(self._found) < _MOST:
            self._found[refused.tool, refused.model, refused.url] = refused
            self._write()

    def warnings(self) -> Sequence[str]:
        """One sentence for each tool."""
        return tuple(map(sentence, self._found.values()))

    def _write(self) -> None:
        try:
            with open_private(self._path.with_suffix(".new"), "wb") as file:
                file.write(msgspec.json.encode(list(self._found.values())))
            self._path.with_suffix(".new").replace(self._path)
        except OSError as error:
            _log.warning("the refused tools cannot be stored", reason=str(error))


def read_refused(directory: Path) -> Sequence[RefusedTool]:
    """Return the tools that models have refused in the latest run of the service. Blocks."""
    try:
        data = (directory / _NAME).read_bytes()
        return msgspec.json.decode(data, type=list[RefusedTool])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ()


def sentence(refused: RefusedTool) -> str:
    """Say which tool is not offered, why, and how to correct it."""
    return (
        f"{refused.model} at {refused.url} refuses the tool {refused.tool}, so it is not offered to"
        f" it: correct its schema, or remove it. The provider says: {refused.reason}"
    )
