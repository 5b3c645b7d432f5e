"""`xmpp-agent skills new`: writes a new skill."""

from pathlib import Path

import click

from component.cli.frame import Fault
from component.cli.skill_templates import BUILDS, TEMPLATES


@click.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(TEMPLATES)),
    default="python",
    show_default=True,
    help="What the skill is written in, and runs as.",
)
@click.option(
    "--directory",
    "-d",
    type=click.Path(path_type=Path),
    help="Directory to write it into.  [default: the name]",
)
def new(name: str, kind: str, directory: Path | None) -> None:
    """Write a new skill into a directory: a manifest, code and a test.

    A skill of the kind rest needs no code: its manifest has an HTTP request.

    \b
    Examples:
      xmpp-agent skills new weather
      xmpp-agent skills new weather.today --directory skills/weather
      xmpp-agent skills new weather --kind wasm-rust
    """
    from component.skills.manifest import ManifestError, read_manifest  # noqa: PLC0415

    target = Path(name) if directory is None else directory
    files = {path: text.replace("@NAME@", name) for path, text in TEMPLATES[kind].items()}
    try:
        read_manifest(files["skill.toml"])
    except ManifestError as error:
        raise click.UsageError(str(error)) from None
    try:
        if target.exists() and any(target.iterdir()):
            raise Fault(f"{target} is not empty: choose another directory with --directory.")
        for path, text in files.items():
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Fault(f"{target} cannot be written: {error.strerror or error}.") from None
    click.echo(f"Wrote {', '.join(files)} to {target}. Next:")
    where = target if target.is_absolute() else f"./{target}"
    if kind in BUILDS:
        click.echo(f"  (cd {target} && {BUILDS[kind]})")
    click.echo(f"  xmpp-agent skills test {where}")
    if kind == "rest":
        click.echo("  (write the request of your API into skill.toml)")
    else:
        click.echo(f"  xmpp-agent skills call {where} who=Romeo")
