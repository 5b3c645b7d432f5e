"""The report as one HTML file without scripts and external resources, which can be printed."""

from html import escape

from conformance.model import RED, ProfileStatus, Result, Run, Status, Verdict
from conformance.requirements import Requirement, Specification

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fdfdfb; --faint: #62686f;
  --rule: #d9dbd7; --tint: #f2f3ef; --link: #0b57a4; --good: #1f6b3f; --bad: #a3260f;
  --warn: #7a5200 }
@media screen and (prefers-color-scheme: dark) { :root { --ink: #e4e5e3; --paper: #17191b;
  --faint: #9aa0a6; --rule: #373b3f; --tint: #212427; --link: #84b9f2; --good: #86d3a4;
  --bad: #f39a85; --warn: #e3bd72 } }
* { box-sizing: border-box }
body { margin: 0; color: var(--ink); background: var(--paper); line-height: 1.5;
  font: 1rem/1.5 system-ui, sans-serif }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 5rem }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; overflow-wrap: anywhere }
h2 { margin: 2.5rem 0 .5rem; border-top: 1px solid var(--rule); padding-top: 1rem }
a { color: var(--link) } .faint { color: var(--faint) }
.good { color: var(--good) } .bad { color: var(--bad) } .warn { color: var(--warn) }
.word { font-weight: 600 } td.word { min-width: 7.5rem }
td.id { white-space: nowrap; font-variant-numeric: tabular-nums }
td.checks { overflow-wrap: anywhere; min-width: 8rem }
table { border-collapse: collapse; width: 100% } .scroll { overflow-x: auto }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0;
  border-bottom: 1px solid var(--rule) }
article { border-left: .3rem solid var(--bad); padding: .1rem 0 .1rem 1rem; margin: 1.25rem 0 }
article.warn { border-color: var(--warn); color: inherit }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .5rem 0 }
dt { color: var(--faint) } dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap }
pre { background: var(--tint); border: 1px solid var(--rule); border-radius: .3rem;
  padding: .6rem .8rem; margin: .4rem 0; overflow-x: auto; font-size: .8rem; line-height: 1.4 }
pre.out { border-left: .3rem solid var(--link) } pre.in { border-left: .3rem solid var(--good) }
summary { cursor: pointer } details { margin: .4rem 0 }
@media print { main { max-width: none; padding: 0 } body { font-size: 9.5pt; background: none }
  pre { white-space: pre-wrap; overflow-wrap: anywhere } .scroll { overflow: visible }
  article, tr { break-inside: avoid } h2 { break-after: avoid } }
"""
_GOOD = frozenset({Status.KEPT, Status.NOTE})
_SOFT = frozenset({Status.WARNING, Status.DISPUTED, Status.EXPECTED})


def as_html(run: Run, specification: Specification) -> str:
    """Return the page."""
    word = "every claimed profile holds" if run.good else "not conformant"
    tone = "good" if run.good else "bad"
    title = f"{escape(run.target)}: {word}"
    head = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main>"
    )
    parts = [
        head,
        f"<h1>{escape(run.target)}</h1><p class='word {tone}'>{word}</p>",
        _head(run, specification),
        _profiles(run, specification),
        _articles(run, specification),
        _requirements(run, specification),
        _unchecked(run, specification),
        _exchanges(run),
        "</main></body></html>\n",
    ]
    return "".join(parts)


def _head(run: Run, specification: Specification) -> str:
    rows = {
        "Specification": f"{specification.name}, version {specification.version}",
        "Reached as": run.driver,
        "Begun": run.started,
        "Took": f"{run.seconds:.1f} s, {len(run.results)} checks",
        **{name: value for name, value in run.about.items() if name != "FORM_TYPE"},
    }
    cells = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows.items())
    faults = "".join(
        f"<p class='bad'>Fault of the kit: {escape(fault)}</p>" for fault in run.faults
    )
    stale = "".join(
        f"<p class='bad'>The baseline names {escape(id_)}, which is no requirement.</p>"
        for id_ in run.stale
    )
    return f"<dl>{cells}</dl>{faults}{stale}"


def _profiles(run: Run, specification: Specification) -> str:
    rows = []
    for profile in specification.profiles:
        status = run.profiles[profile.name]
        tone = {ProfileStatus.FAILS: "bad", ProfileStatus.NOT_CLAIMED: "faint"}.get(status, "good")
        tone = "faint" if status is ProfileStatus.NOT_JUDGED else tone
        own = [
            run.verdicts[one.id].status
            for one in specification.requirements
            if one.profile == profile.name
        ]
        rows.append(
            f"<tr><td>{escape(profile.title)}</td><td class='word {tone}'>{status.value}</td>"
            f"<td>{own.count(Status.KEPT)}</td><td>{sum(one in RED for one in own)}</td>"
            f"<td>{own.count(Status.WARNING)}</td><td>{len(own)}</td></tr>"
        )
    return (
        "<h2>Profiles</h2><div class='scroll'><table><tr><th>Profile</th><th>Verdict</th>"
        "<th>Kept</th><th>Broken or blocked</th><th>Warnings</th><th>Requirements</th></tr>"
        f"{''.join(rows)}</table></div>"
    )


def _articles(run: Run, specification: Specification) -> str:
    parts = []
    for requirement in specification.requirements:
        verdict = run.verdicts[requirement.id]
        if verdict.status in RED or verdict.status in _SOFT:
            parts.append(_article(requirement, verdict, specification))
    return f"<h2>What to look at</h2>{''.join(parts)}" if parts else ""


def _article(requirement: Requirement, verdict: Verdict, specification: Specification) -> str:
    soft = verdict.status in _SOFT
    rows = [
        f"<dt>in</dt><dd><a href='#check-{escape(result.name)}'>{escape(result.name)}</a></dd>"
        f"<dt>expected</dt><dd>{escape(finding.expected)}</dd>"
        f"<dt>got</dt><dd>{escape(finding.got)}</dd>"
        for result in verdict.results
        for finding in result.findings
        if finding.id == requirement.id
    ]
    if not rows and verdict.reason:
        rows.append(f"<dt>why</dt><dd>{escape(verdict.reason)}</dd>")
    return (
        f"<article class='{'warn' if soft else 'bad-edge'}' id='{requirement.id}'>"
        f"<p><span class='word {'warn' if soft else 'bad'}'>{requirement.id}"
        f" {verdict.status.value}</span> {escape(requirement.sentence)}"
        f" <a href='{escape(specification.anchor(requirement))}'>specification</a></p>"
        f"<dl>{''.join(rows)}</dl></article>"
    )


def _requirements(run: Run, specification: Specification) -> str:
    rows = []
    hidden = (Status.UNCHECKED, Status.UNWRITTEN, Status.NOT_SELECTED)
    for one in specification.requirements:
        verdict = run.verdicts[one.id]
        if verdict.status in hidden:
            continue
        tone = "good" if verdict.status in _GOOD else "faint"
        tone = "bad" if verdict.status in RED else tone
        tone = "warn" if verdict.status in _SOFT else tone
        checks = ", ".join(
            f"<a href='#check-{escape(result.name)}'>{escape(result.name)}</a>"
            for result in verdict.results
        )
        rows.append(
            f"<tr><td class='id'><a href='{escape(specification.anchor(one))}'>{one.id}</a></td>"
            f"<td class='word {tone}'>{verdict.status.value}</td>"
            f"<td>{escape(one.sentence)}</td><td class='checks'>{checks}</td></tr>"
        )
    return (
        "<h2>Requirements</h2><div class='scroll'><table><tr><th>Id</th><th>Verdict</th>"
        f"<th>Sentence</th><th>Checks</th></tr>{''.join(rows)}</table></div>"
    )


def _unchecked(run: Run, specification: Specification) -> str:
    rows = []
    for one in specification.requirements:
        verdict = run.verdicts[one.id]
        if verdict.status in (Status.UNCHECKED, Status.UNWRITTEN):
            rows.append(
                f"<tr><td class='id'><a href='{escape(specification.anchor(one))}'>{one.id}</a>"
                f"</td><td>{one.level}</td><td>{escape(one.sentence)}</td>"
                f"<td>{escape(verdict.reason)}</td></tr>"
            )
    if not rows:
        return ""
    return (
        "<h2>Without a check</h2><div class='scroll'><table><tr><th>Id</th><th>Level</th>"
        f"<th>Sentence</th><th>Why</th></tr>{''.join(rows)}</table></div>"
    )


def _exchanges(run: Run) -> str:
    parts = [_exchange(result) for result in run.results if result.record is not None]
    return f"<h2>What was exchanged</h2>{''.join(parts)}"


def _exchange(result: Result) -> str:
    assert result.record is not None
    stanzas = "".join(
        f"<pre class='{entry.way}' title='{'sent' if entry.way == 'out' else 'received'}'>"
        f"<span class='faint'>{'→' if entry.way == 'out' else '←'} {entry.at:.3f} s</span>\n"
        f"{escape(entry.pretty)}</pre>"
        for entry in result.record.entries
    )
    opened = " open" if result.findings else ""
    reason = f"<p class='faint'>{escape(result.reason)}</p>" if result.reason else ""
    return (
        f"<details id='check-{escape(result.name)}'{opened}><summary>{escape(result.name)}:"
        f" {escape(result.title)} <span class='word'>{result.outcome.value}</span></summary>"
        f"{reason}{stanzas}</details>"
    )
