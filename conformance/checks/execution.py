"""Execution: The Request, The Result."""

from conformance.model import Ability, check
from conformance.talk import Talk
from xep.fluux_agent.execute import NAMESPACE, Result
from xep.fluux_agent.skills import SkillsQuery

LONGEST_INLINE = 30
"""In seconds; some servers and clients abandon an IQ after a minute."""


@check("execute.first-draft", "EXE-009", "EXE-011", roles=("echo", "add"))
async def inline(t: Talk) -> None:
    """Short work is answered with its result in the answer to its IQ."""
    skill = t.skill("echo")
    answer = await t.iq("set", t.request("echo", {"text": "hello"}))
    result = t.decoded("EXE-009", answer, Result, "<result/> in the answer to the IQ")
    t.hold("EXE-009", [one.text for one in result.outputs] == ["hello"], "hello", answer)
    t.hold("EXE-009", result.skill == skill.name, f"the result of {skill.name}", answer)
    for mode in ("inline", "auto"):
        answer = await t.execute("add", {"a": "20", "b": "22"}, mode=mode)
        result = t.decoded("EXE-009", answer, Result, f"<result/> in mode {mode}")
        t.hold("EXE-009", [one.text for one in result.outputs] == ["42"], "42", answer)
        names = [output.name for output in result.outputs]
        t.hold("EXE-011", len(names) == len(set(names)), "artifacts of different names", answer)


@check("execute.inline-limit", "EXE-010")
async def inline_limit(t: Talk) -> None:
    """The inline limit lies well below the time-outs of servers and clients."""
    limit = t.target.number("inline_seconds", -1)
    expected = f"inline_seconds of 1 to {LONGEST_INLINE}"
    t.hold("EXE-010", 0 < limit <= LONGEST_INLINE, expected, str(limit))


@check("execute.says-no", "EXE-014", roles=("fail",))
async def says_no(t: Talk) -> None:
    """A skill that reports an error has a result with is-error, not a stanza error."""
    message = "there is no such folder"
    answer = await t.execute("fail", {"message": message})
    result = t.decoded("EXE-014", answer, Result, "<result is-error='true'/>")
    t.hold("EXE-014", result.is_error, "is-error='true'", answer)
    says = any(message in output.text for output in result.outputs)
    t.hold("EXE-014", says, "the reason that the skill gave", answer)


@check("execute.earlier-unknown", "EXE-001", roles=("echo",))
async def earlier(t: Talk) -> None:
    """An earlier task that does not belong to the principal is unknown."""
    extra = f"<earlier xmlns='{NAMESPACE}' task='t-no-such-task'/>"
    answer = await t.execute("echo", {"text": "x"}, extra=extra)
    t.holds_error("EXE-001", answer, "item-not-found", "unknown-task")


@check("execute.version", "EXE-028", roles=("echo",))
async def version(t: Talk) -> None:
    """A request that names another version of a skill is refused."""
    asked = SkillsQuery(skill=t.skill("echo").name)
    query = t.given(await t.iq("get", asked), SkillsQuery, "The skills query")
    own = query.skills[0].version or ""
    t.need(bool(own), "The skill has no version.")
    for named, is_right in ((own, True), ("0.0.0-another", False)):
        answer = await t.execute("echo", {"text": "x"}, version=named)
        if is_right:
            t.hold("EXE-028", not answer.is_error, f"a result: the version is {named}", answer)
        else:
            why = "the version is another one"
            t.holds_error("EXE-028", answer, "item-not-found", "unknown-skill", why=why)


@check("delegation.unavailable", "DLG-001", roles=("echo",))
async def delegation(t: Talk) -> None:
    """An agent that accepts no delegated work says so."""
    if t.target.serves("delegation"):
        t.hold("DLG-001", True, "the target serves #delegation")
        return
    bare = t.who.caller.partition("/")[0]
    extra = (
        f"<delegation xmlns='urn:fluux:agent:0#delegation' origin='{bare}' max-hops='4'>"
        f"<via>{bare}</via></delegation>"
    )
    answer = await t.execute("echo", {"text": "x"}, extra=extra)
    t.holds_error("DLG-001", answer, "feature-not-implemented", "delegation-unavailable")


@check("execute.output-file", "EXE-012", roles=("big",), needs=[Ability.HOSTILE])
async def big(t: Talk) -> None:
    """An artifact that does not fit into a stanza is given by reference, or refused."""
    size = t.target.number("max_stanza_bytes", 262144) + 1
    answer = await t.execute("big", {"bytes": str(size)}, within=max(t.timeout, 20))
    if answer.is_error:
        # An agent that cannot give references refuses it as in the row of the table for a result
        # that is too big.
        t.holds_error("EXE-012", answer, "policy-violation", "too-big")
        return
    result = t.decoded("EXE-012", answer, Result, "a result")
    files = [output.file for output in result.outputs]
    t.hold("EXE-012", bool(files) and None not in files, "<file-sharing/>", answer)


CHECKS = (inline, inline_limit, says_no, earlier, version, delegation, big)
