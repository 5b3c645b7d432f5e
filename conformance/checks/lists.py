"""Common Rules: Lists."""

from conformance.model import check
from conformance.talk import Talk
from xep.disco import ItemsQuery
from xep.fluux_agent.skills import NAMESPACE, SkillsQuery
from xep.result_sets import NAMESPACE as RSM
from xep.result_sets import ResultSet

_MOST_PAGES = 200


@check("list.pages", "COM-023")
async def pages(t: Talk) -> None:
    """Following the pages gives each skill once, in a fixed order."""
    whole: list[str] = []
    after: str | None = None
    for _ in range(_MOST_PAGES):
        answer = await t.iq("get", SkillsQuery(page=ResultSet(max=2, after=after)))
        query = t.decoded("COM-023", answer, SkillsQuery, "a page of skills")
        names = [one.name for one in query.skills]
        t.hold("COM-023", len(names) <= 2, "no more entries than <max/>", answer)
        if not names:
            break
        whole += names
        after = query.page.last if query.page is not None else None
        if after is None:
            t.hold("COM-023", False, "<last/>, to go on after", answer)
            return
    t.hold("COM-023", len(whole) == len(set(whole)), "each skill once", ", ".join(whole))
    missing = t.target.offered - set(whole)
    t.hold("COM-023", not missing, "every skill on some page", f"missing: {sorted(missing)}")
    answer = await t.iq("get", SkillsQuery(page=ResultSet(max=1, before="")))
    query = t.decoded("COM-023", answer, SkillsQuery, "the last page")
    last = [one.name for one in query.skills]
    t.hold("COM-023", last == whole[-1:], "the last page ends with the last skill", answer)


@check("list.bounds", "COM-024")
async def bounds(t: Talk) -> None:
    """A page has at most 50 entries and 64 KiB, but at least one entry if one is left."""
    answer = await t.iq("get", SkillsQuery(page=ResultSet(max=1000)))
    query = t.decoded("COM-024", answer, SkillsQuery, "a page of skills")
    t.hold("COM-024", len(query.skills) <= 50, "at most 50 entries", answer)
    t.hold("COM-024", len(answer.xml.encode()) <= 65536, "at most 64 KiB", answer)
    ok = bool(query.skills) or not t.target.offered
    t.hold("COM-024", ok, "at least one entry", answer)


@check("list.set", "COM-025")
async def result_set(t: Talk) -> None:
    """A list has <set/> even if the request had none."""
    for payload, tag in (
        (SkillsQuery(), f"{{{NAMESPACE}}}query"),
        (ItemsQuery(node=NAMESPACE), "{http://jabber.org/protocol/disco#items}query"),
    ):
        answer = await t.iq("get", payload)
        found = answer.tree.find(f"{tag}/{{{RSM}}}set")
        t.hold("COM-025", found is not None, "a <set/> in the answer", answer)


@check("list.impossible", "COM-026")
async def impossible(t: Talk) -> None:
    """A contradictory request for a page is malformed."""
    for content in ("<max>-1</max>", "<max>many</max>", "<max>1</max><index>-3</index>"):
        payload = f"<query xmlns='{NAMESPACE}'><set xmlns='{RSM}'>{content}</set></query>"
        answer = await t.iq("get", payload)
        t.holds_error("COM-026", answer, "bad-request", "malformed", why=content)


@check("list.index", "COM-028")
async def by_index(t: Talk) -> None:
    """A page that is requested by its number begins there, or is refused."""
    answer = await t.iq("get", SkillsQuery(page=ResultSet(max=2)))
    query = t.decoded("COM-028", answer, SkillsQuery, "the first page of skills")
    second = [one.name for one in query.skills][1:]
    answer = await t.iq("get", SkillsQuery(page=ResultSet(max=1, index=1)))
    if answer.is_error:
        t.holds_error("COM-028", answer, "feature-not-implemented", None)
        return
    query = t.decoded("COM-028", answer, SkillsQuery, "a page of skills")
    ok = [one.name for one in query.skills] == second
    t.hold("COM-028", ok, f"the second skill: {second}", answer)


CHECKS = (pages, bounds, result_set, impossible, by_index)
