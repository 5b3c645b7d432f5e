"""Reports for machines: JSON, and the JUnit XML that build servers read."""

from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec

from conformance.model import RED, Result, Run, Status, Verdict
from conformance.replay import about_line
from conformance.requirements import Specification

FORMAT = 1
"""The version of the JSON report's format; it increases when the meaning of a member changes."""
_SKIPPED = frozenset(
    {
        Status.NOT_OBSERVABLE,
        Status.NOT_CLAIMED,
        Status.UNCHECKED,
        Status.UNWRITTEN,
        Status.NOT_SELECTED,
        Status.EXPECTED,
    }
)


def as_json(run: Run, specification: Specification) -> str:
    """Return the whole run as one JSON object."""
    return msgspec.json.format(msgspec.json.encode(_run(run, specification)), indent=2).decode()


def as_junit(run: Run, specification: Specification, *, strict: bool) -> str:
    """Return a JUnit file: a suite per profile, a case per requirement.

    It is valid by the strictest schema in use, which requires every attribute.
    """
    red = RED | {Status.WARNING} if strict else RED
    suites = []
    for number, profile in enumerate(specification.profiles):
        own = [run.verdicts[r.id] for r in specification.requirements if r.profile == profile.name]
        cases = "".join(_case(one, specification, profile.name, red) for one in own)
        faults = sum(one.status is Status.FAULT for one in own)
        head = {
            "id": str(number),
            "package": specification.name,
            "name": profile.name,
            "hostname": run.target,
            "timestamp": run.started[:19],
            "time": f"{sum(_seconds(one) for one in own):.3f}",
            "tests": str(len(own)),
            "failures": str(sum(one.status in red for one in own) - faults),
            "errors": str(faults),
            "skipped": str(sum(one.status in _SKIPPED for one in own)),
        }
        attributes = "".join(f" {name}={quoteattr(value)}" for name, value in head.items())
        about = {"verdict": run.profiles[profile.name].value, "reached as": run.driver, **run.about}
        properties = "".join(
            f"<property name={quoteattr(_clean(name))} value={quoteattr(_clean(value) or '-')}/>"
            for name, value in about.items()
        )
        suites.append(
            f"<testsuite{attributes}><properties>{properties}</properties>{cases}"
            "<system-out/><system-err/></testsuite>"
        )
    return (
        "<?xml version='1.0' encoding='UTF-8'?>\n<testsuites>" + "".join(suites) + "</testsuites>\n"
    )


def _seconds(verdict: Verdict) -> float:
    return sum(result.seconds for result in verdict.results)


def as_script(run: Run) -> str:
    """Return the stanzas of each check as text that a person can read and the kit can replay."""
    parts = []
    for one in run.results:
        if one.record is None or not one.record.entries:
            continue
        head = f"# {one.name}: {one.title}\n# {one.outcome.value}\n"
        if one.record.cast is not None:
            head += about_line(run.started, one.record.cast) + "\n"
        parts.append(f"{head}\n{one.record.script()}\n")
    return "\n".join(parts)


def _case(
    verdict: Verdict, specification: Specification, profile: str, red: frozenset[Status]
) -> str:
    requirement = specification.by_id[verdict.id]
    xml = (
        f"<testcase classname={quoteattr(f'{profile}.{requirement.section}')}"
        f" name={quoteattr(verdict.id)} time='{_seconds(verdict):.3f}'"
    )
    message = quoteattr(_clean(verdict.reason or verdict.status.value))
    if verdict.status in red:
        found = [one for result in verdict.results for one in result.findings]
        text = requirement.sentence + "".join(
            f"\nexpected: {one.expected}\ngot: {one.got}" for one in found if one.id == verdict.id
        )
        tag = "error" if verdict.status is Status.FAULT else "failure"
        kind = quoteattr(verdict.status.value)
        inside = escape(_clean(text))
        return f"{xml}><{tag} type={kind} message={message}>{inside}</{tag}></testcase>"
    if verdict.status in _SKIPPED:
        return f"{xml}><skipped message={message}/></testcase>"
    return f"{xml}/>"


def _clean(text: str) -> str:
    """Return the text without characters that XML does not allow."""
    return "".join(char for char in text if char >= " " or char in "\t\n\r")


def _run(run: Run, specification: Specification) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "specification": {"name": specification.name, "version": specification.version},
        "target": run.target,
        "driver": run.driver,
        "about": dict(run.about),
        "started": run.started,
        "seconds": round(run.seconds, 3),
        "good": run.good,
        "profiles": {name: status.value for name, status in run.profiles.items()},
        "requirements": [
            {
                "id": one.id,
                "level": one.level,
                "profile": one.profile,
                "section": one.section,
                "sentence": one.sentence,
                "link": specification.anchor(one),
                "status": run.verdicts[one.id].status.value,
                "reason": run.verdicts[one.id].reason,
                "checks": [result.name for result in run.verdicts[one.id].results],
            }
            for one in specification.requirements
        ],
        "checks": [_result(one) for one in run.results],
        "faults": list(run.faults),
        "stale": list(run.stale),
    }


def _result(result: Result) -> dict[str, Any]:
    record = result.record
    return {
        "name": result.name,
        "title": result.title,
        "observes": list(result.observes),
        "outcome": result.outcome.value,
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
        "findings": [msgspec.to_builtins(one) for one in result.findings],
        "exchange": []
        if record is None
        else [{"way": e.way, "at": round(e.at, 3), "xml": e.short} for e in record.entries],
    }
