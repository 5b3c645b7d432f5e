"""Every stanza in the guides is valid, and is read and written again without loss."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote

import pytest
import rfc8785

from tests.servers.guides import DOCS
from tests.xep.protoxep import test_examples as examples
from xep.binding import decode
from xep.fluux_agent.confirm import Confirm

ROOT = DOCS.parent
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def shown(language: str) -> list[tuple[str, str]]:
    """The page and text of each block of the guides in a language."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [
        (page.name, text) for page in PAGES for text in pattern.findall(page.read_text("utf-8"))
    ]


@pytest.mark.parametrize("text", [text for _, text in shown("xml")])
def test_stanzas_of_the_guides_pass_the_checks_of_the_specification(text: str) -> None:
    # Who a stanza comes from, and that it goes to us, are left out where they go without saying.
    examples.test_it_fits_the_schemas(text)
    examples.test_it_is_read_and_written_without_loss(text)
    for stanza in examples.stanzas(text):
        assert stanza.get("to") or stanza.get("from")


def test_the_digest_in_a_question_is_that_of_what_it_asks() -> None:
    found = 0
    for _, text in shown("xml"):
        for message in examples.stanzas(text):
            for element in examples.payloads(message):
                if element.tag != Confirm.xml.tag:
                    continue
                confirm = decode(Confirm, element)
                params = {param.name: param.text for param in confirm.action.params}
                if confirm.action.json_params is not None:
                    params |= json.loads(bytes(confirm.action.json_params.json))
                covered = {
                    "agent": message.get("from"),
                    "confirmation": confirm.id,
                    "expires": element.findtext("{*}expires"),
                    "params": params,
                    "principal": str(confirm.principal),
                    "skill": confirm.action.type,
                    "task": confirm.task,
                    "version": confirm.action.version,
                }
                assert confirm.hash is not None
                digest = sha256(rfc8785.dumps(covered)).digest()
                assert b64encode(confirm.hash.digest) == b64encode(digest)
                found += 1
    assert found == 1


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    text = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return text.replace(" ", "-")


BUILT = {
    line[1:]
    for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()
    if line.startswith("/docs/")
}
"""What `make docs` builds."""


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_of_the_guides_has_a_target(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = page.parent / path if path else page
        if there.resolve().relative_to(ROOT).as_posix() in BUILT:
            continue
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text("utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), target
