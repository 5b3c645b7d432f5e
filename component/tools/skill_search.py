"""The tool with which a model searches the skills of other agents, if they are too many for all of
them to be tools: its description, the words that it is given, and what it answers.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from component.agent.protocol import ToolResult
from component.models.protocol import Tool
from component.skills import Skill
from component.skills.foreign_texts import line

NAME: Final = "search_skills"
MOST_TOOLS: Final = 20
"""Up to this number of skills of other agents, each is a tool. With more, only those are that were
found last, and as many at most.
"""
MOST_FOUND: Final = 8
"""The maximum number of skills in an answer."""
_MOST_WORDS: Final = 16
_MOST_AGENTS: Final = 20
_MOST_PARAMETERS: Final = 12
_LONGEST_NAME: Final = 40
_LONGEST_DESCRIPTION: Final = 200
_PARAMETERS: Final = msgspec.Raw(
    msgspec.json.encode(
        {
            "type": "object",
            "properties": {
                "words": {
                    "type": "string",
                    "description": "What the skill does, in a few words: weather forecast",
                }
            },
            "required": ["words"],
        }
    )
)


def search_tool(skills: Mapping[str, int]) -> Tool:
    """Return the tool; `skills` are the numbers of skills of each agent."""
    return Tool(
        name=NAME,
        description=(
            f"Search the {sum(skills.values()):,} skills of {_agents(skills)}. What it finds you"
            ' can call as tools afterwards. Example: {"words": "weather forecast"}'
        ),
        parameters=_PARAMETERS,
    )


def words_of(arguments: str) -> frozenset[str]:
    """Return what to search for: words in lower case, without the s of a plural. Raises ValueError:
    the arguments of the tool have no words.
    """
    given = msgspec.json.decode(arguments, type=dict[str, Any]).get("words")
    texts = given if isinstance(given, list) else [given]
    found = [
        word.removesuffix("s") if len(word) > len("news") else word
        for text in texts
        if isinstance(text, str)
        for word in re.findall(r"\w+", text.casefold())
    ]
    if not found:
        raise ValueError('give a few words: {"words": "weather forecast"}')
    return frozenset(found[:_MOST_WORDS])


def found_nothing(skills: Mapping[str, int]) -> ToolResult:
    """Return the answer to a search without matches."""
    return ToolResult(f"No skill has any of these words. Try others. There are {_agents(skills)}.")


def found_skills(skills: Sequence[tuple[str, Skill]], whole: int, some: int) -> ToolResult:
    """Return the answer to a search: skills with the names of their tools, the best match first.

    `whole` is the number of skills in which all words occur, `some` of those with some of them.
    """
    words, count = ("all words", whole) if whole else ("some of the words", some)
    more = count - len(skills)
    lines = [f"Skills with {words}, which you can call as tools now:"]
    lines += [f"- {_described(name, skill)}" for name, skill in skills]
    if more > 0:
        lines.append(f"There are {more:,} more: search with other words to find them.")
    return ToolResult(
        "\n".join(lines), taint="peer", found=tuple([skill.name for _, skill in skills])
    )


def _agents(skills: Mapping[str, int]) -> str:
    names = list(skills)[:_MOST_AGENTS]
    more = len(skills) - len(names)
    listed = ", ".join(names) + (f" and {more:,} more" if more else "")
    return f"{len(skills):,} other agent{'s' * (len(skills) != 1)} ({listed})"


def _described(name: str, skill: Skill) -> str:
    schema = skill.input_schema
    properties, required = schema.get("properties"), schema.get("required")
    params = []
    for param, declared in (properties if isinstance(properties, dict) else {}).items():
        kind = declared.get("type") if isinstance(declared, dict) else None
        needed = isinstance(required, list) and param in required
        says = f"{kind}" if isinstance(kind, str) else "any"
        params.append(f"{line(param, _LONGEST_NAME)}{'' if needed else '?'}: {line(says, 10)}")
    if len(params) > _MOST_PARAMETERS:
        params[_MOST_PARAMETERS:] = ["…"]
    text = line(skill.description or skill.title, _LONGEST_DESCRIPTION)
    return f"{name}({', '.join(params)}): {text}"
