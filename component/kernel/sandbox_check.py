"""What `xmpp-agent doctor` looks at of the sandbox: what the kernel guarantees."""

from component.kernel.check import Check
from component.sandbox.report import confinement_report


async def check_sandbox() -> Check:
    """Whether skills, servers and parsers that are not trusted can be confined to a process.

    It never fails: a service without such skills needs nothing of this.
    """
    report = await confinement_report()
    if report.problem:
        text = f"skills that are not trusted cannot run on this system: {report.problem}"
        return Check("confinement", "warning", text)
    missing = "; ".join(f"that they {one.text}" for one in report.missing)
    if not missing:
        text = f"confined processes are bounded in all {len(report.guarantees)} respects"
        return Check("confinement", "ok", text)
    text = f"not guaranteed for confined processes on this system: {missing} (docs/sandbox.md)"
    return Check("confinement", "warning", text)
