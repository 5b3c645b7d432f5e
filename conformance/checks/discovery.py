"""Discovery: Is This an Agent?"""

from conformance.checks.addresses import agents
from conformance.model import check
from conformance.talk import Talk
from xep.data_forms import Form
from xep.disco import InfoQuery
from xep.fluux_agent import NAMESPACE as AGENT

PARTS = ("confirm", "delegation", "execute", "grant", "memory", "plan", "skills", "task")
_ALWAYS = (
    "agent_name",
    "software",
    "protocol_version",
    "max_stanza_bytes",
    "inline_seconds",
    "requests_per_principal",
)
_NUMBERS = (
    "max_stanza_bytes",
    "inline_seconds",
    "requests_per_principal",
    "replay_seconds",
    "retention_seconds",
    "tasks_per_principal",
    "max_hops",
)
_PROBES = {
    "execute": ("set", "<execute xmlns='urn:fluux:agent:0#execute' skill='no-such-skill'/>"),
    "skills": ("get", "<query xmlns='urn:fluux:agent:0#skills'/>"),
    "task": ("get", "<task xmlns='urn:fluux:agent:0#task' id='no-such-task'/>"),
    "confirm": (
        "set",
        "<decision xmlns='urn:fluux:agent:0#confirm' id='no-such-question' value='deny'/>",
    ),
}


async def _info(t: Talk, id_: str) -> InfoQuery:
    answer = await t.iq("get", InfoQuery())
    return t.decoded(id_, answer, InfoQuery, "an answer to disco#info")


def agent_form(info: InfoQuery) -> dict[str, tuple[str, ...]] | None:
    """Return the fields of the form `urn:fluux:agent:0`; None if it is not there."""
    for form in info.forms:
        fields = _fields(form)
        if fields.get("FORM_TYPE") == (AGENT,):
            return fields
    return None


def _fields(form: Form) -> dict[str, tuple[str, ...]]:
    return {one.var: tuple(one.values) for one in form.fields if one.var is not None}


@check("disco.features", "DSC-001")
async def features(t: Talk) -> None:
    """It announces the feature and each part that it serves, and no others."""
    listed = {one.var for one in (await _info(t, "DSC-001")).features}
    t.hold("DSC-001", AGENT in listed, f"the feature {AGENT}", ", ".join(sorted(listed)))
    unknown = {one for one in listed if one.startswith(f"{AGENT}#")}
    unknown -= {f"{AGENT}#{part}" for part in PARTS}
    t.hold("DSC-001", not unknown, "only parts that the document has", ", ".join(unknown))
    for part, (type_, payload) in _PROBES.items():
        answer = await t.iq(type_, payload)
        served = "service-unavailable" not in answer.stanza_conditions
        served = served and "feature-not-implemented" not in answer.stanza_conditions
        says = f"{AGENT}#{part}" in listed
        expected = f"#{part} is listed if, and only if, it is served"
        t.hold("DSC-001", says == served, expected, answer)


@check("disco.base", "DSC-007")
async def base(t: Talk) -> None:
    """An agent that announces the feature supports skills and execution."""
    listed = {one.var for one in (await _info(t, "DSC-007")).features}
    both = {f"{AGENT}#skills", f"{AGENT}#execute"} <= listed
    t.hold("DSC-007", both, "the features #skills and #execute", ", ".join(sorted(listed)))
    for part in ("skills", "execute"):
        answer = await t.iq(*_PROBES[part])
        ok = "service-unavailable" not in answer.stanza_conditions
        t.hold("DSC-007", ok, f"#{part} is served", answer)


@check("disco.identity", "DSC-002")
async def identity(t: Talk) -> None:
    """An agent is client/bot, a component that hosts agents component/generic."""
    info = await _info(t, "DSC-002")
    found = [f"{one.category}/{one.type}" for one in info.identities]
    wanted = "component/generic" if t.target.is_component else "client/bot"
    t.hold("DSC-002", wanted in found, f"the identity {wanted}", ", ".join(found))


@check("disco.agents", "DSC-003")
async def hosted(t: Talk) -> None:
    """A component lists its agents as items without a node, ordered by address."""
    if not t.target.is_component:
        t.hold("DSC-003", True, "the target is an agent, not the component that hosts it")
        return
    jids = [str(item.jid) for item in await agents(t)]
    own = [jid for jid in jids if jid.endswith(f"@{t.target.domain}")]
    t.hold("DSC-003", bool(own), "the agents it hosts as items without a node", str(jids))
    t.hold("DSC-003", jids == sorted(jids), "items ordered by address", str(jids))
    for jid in own[:3]:
        answer = await t.iq("get", InfoQuery(), to=jid)
        info = t.decoded("DSC-003", answer, InfoQuery, "disco#info of a hosted agent")
        ok = AGENT in {one.var for one in info.features}
        t.hold("DSC-003", ok, f"{jid} is an agent", answer)


@check("disco.form", "DSC-004")
async def form(t: Talk) -> None:
    """The form of the agent exists, with all required fields."""
    info = await _info(t, "DSC-004")
    fields = agent_form(info)
    if not t.hold("DSC-004", fields is not None, f"a form with the FORM_TYPE {AGENT}"):
        return
    assert fields is not None
    wanted = list(_ALWAYS)
    wanted += ["retention_seconds", "tasks_per_principal"] if t.target.serves("task") else []
    wanted += ["max_hops"] if t.target.serves("delegation") else []
    missing = [name for name in wanted if not fields.get(name)]
    t.hold("DSC-004", not missing, "the fields that are always there", f"missing: {missing}")
    version = fields.get("protocol_version")
    t.hold("DSC-004", version == ("0",), "protocol_version 0", str(version))
    wrong = [n for n in _NUMBERS if n in fields and not _is_number("".join(fields[n]))]
    t.hold("DSC-004", not wrong, "whole numbers where numbers are meant", f"wrong: {wrong}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


CHECKS = (features, base, identity, hosted, form)
