"""A page is followed from top to bottom, in a Debian as its reader has it."""

import contextlib
import json
import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.booted import LIMIT_S, PACKAGES, Booted
from tests.packaging.chroots import Chroot, new_debian
from tests.packaging.releases import BIN, copy_sources
from tests.servers.guides import DOCS

HOST, AGENT = "example.com", "agent.example.com"
PEOPLE = {"juliet": "swear-not-by-the-moon", "romeo": "art-thou-not-romeo"}
AUTHORITY = "/etc/ssl/example.pem"
CHECKOUT = "/home/juliet/xmpp-agent-component"
COMMANDS = ("sh", "console")
"""The languages of blocks in which commands are."""


class Page:
    """The blocks of a page, in order. No command may be left out without a reason."""

    def __init__(self, name: str) -> None:
        self.name = name
        text = (DOCS / name).read_text()
        found = re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
        self._blocks = [
            (language, re.sub(rf"^{indent}", "", body, flags=re.MULTILINE))
            for indent, language, body in found
        ]

    def block(self, language: str) -> str:
        """Return the next block of this language; those before it have no commands."""
        while self._blocks:
            found, body = self._blocks.pop(0)
            if found == language:
                return re.sub(r"^\$ ", "", body, flags=re.MULTILINE)
            assert found not in COMMANDS, f"{self.name}: {body}"
        raise AssertionError(f"{self.name} has no more blocks of {language}")

    def commands(self) -> str:
        """Return the next commands."""
        return self.block("sh")

    def pass_over(self, reason: str) -> str:
        """Return the next commands, which cannot be run here for a reason."""
        assert reason
        return self.commands()

    @contextlib.contextmanager
    def followed(self) -> Iterator["Page"]:
        """At the end of the context no commands are left."""
        yield self
        assert not [body for language, body in self._blocks if language in COMMANDS], self.name


class Person:
    """Somebody who writes to an agent, with a client on the machine."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def logged_in(self) -> None:
        """Wait until the client is logged in."""
        assert self._lines.get(timeout=LIMIT_S) == "ready\n"

    def say(self, text: str, to: str = f"assistant@{AGENT}") -> None:
        """Send a message."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([to, text]) + "\n")
        self._process.stdin.flush()

    def hear(self, part: str = "") -> str:
        """Return the text of the next message that contains `part`."""
        others = []
        while True:
            try:
                text = str(json.loads(self._lines.get(timeout=LIMIT_S))[1])
            except queue.Empty:
                raise AssertionError(f"{part!r} did not come, but {others}") from None
            if part in text:
                return text
            others.append(text)

    def asks(self, text: str, part: str = "", to: str = f"assistant@{AGENT}") -> str:
        """Send a message, and return the next one that contains `part`."""
        self.say(text, to)
        return self.hear(part)


@contextlib.contextmanager
def chatting(machine: Booted, who: str = "juliet") -> Iterator[Person]:
    """A person is logged in within the context."""
    machine.write("/tmp/person.py", Path(__file__).with_name("person.py").read_text())
    given = f"{who}@{HOST} {PEOPLE[who]} {AUTHORITY}"
    client = f"/opt/client/bin/python3 /tmp/person.py {given} 2>/tmp/{who}.log"
    process = subprocess.Popen(
        machine.command(client), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    person = Person(process)
    try:
        person.logged_in()
        yield person
    finally:
        process.stdin.close()
        process.wait(LIMIT_S)
        person.listener.join()
        assert process.stdout is not None
        process.stdout.close()


def new_machine(root: Path, package: Path) -> None:
    """Make a Debian with the package, its two XMPP servers for example.com, which do not run yet,
    the accounts of people, and a checkout in the home of one.
    """
    archive = root.with_suffix(".tar")
    new_debian(archive, PACKAGES)
    inside = Chroot.unpacked(archive, root)
    archive.unlink()
    inside.path("/etc/hosts").write_text(f"127.0.0.1 localhost example {HOST} {AGENT}\n")
    inside.path("/etc/machine-id").write_text("")
    for each in ("console-getty", "prosody", "ejabberd"):
        inside.path(f"/etc/systemd/system/{each}.service").unlink(missing_ok=True)
    inside.path("/etc/systemd/system/console-getty.service").symlink_to("/dev/null")
    for each in ("prosody", "ejabberd", "postgresql"):
        inside.check("systemctl", "disable", each)
    for name in PEOPLE:
        inside.check("useradd", "--create-home", "--shell", "/bin/bash", name)
    _certify(inside)
    inside.path(f"/etc/prosody/conf.avail/{HOST}.cfg.lua").write_text(f'VirtualHost "{HOST}"\n')
    inside.path(f"/etc/prosody/conf.d/{HOST}.cfg.lua").symlink_to(f"../conf.avail/{HOST}.cfg.lua")
    ejabberd = inside.path("/etc/ejabberd/ejabberd.yml")
    text, hosts = re.subn(
        r"^hosts:\n  - localhost$", f"hosts:\n  - {HOST}", ejabberd.read_text(), flags=re.MULTILINE
    )
    assert hosts == 1
    ejabberd.write_text(text)
    inside.path("/root/dist").mkdir()
    shutil.copy(package, inside.path("/root/dist"))
    _checkout(inside)


_CERTIFY = f"""set -e
cd /root
new="openssl req -x509 -newkey rsa:2048 -nodes -days 100"
$new -subj "/CN=an authority" -keyout authority.key -out {AUTHORITY}
$new -subj /CN={HOST} -addext subjectAltName=DNS:{HOST},DNS:*.{HOST} \\
  -addext basicConstraints=CA:FALSE -CA {AUTHORITY} -CAkey authority.key \\
  -keyout /etc/prosody/certs/{HOST}.key \\
  -out /etc/prosody/certs/{HOST}.crt
cat /etc/prosody/certs/{HOST}.* > /etc/ejabberd/ejabberd.pem
chgrp prosody /etc/prosody/certs/*
chgrp ejabberd /etc/ejabberd/*
chmod 640 /etc/prosody/certs/* /etc/ejabberd/ejabberd.pem
"""


def _certify(inside: Chroot) -> None:
    """Give the servers a certificate of an authority that the clients of the people know."""
    inside.check("sh", "-c", _CERTIFY)


def _checkout(inside: Chroot) -> None:
    """Put a checkout into a home, and what `pip install` gets from the network beside it."""
    copy_sources(inside.path(CHECKOUT))
    inside.check("chown", "-R", "juliet:juliet", CHECKOUT)
    shutil.copytree(BIN.parent / "guides-wheelhouse", inside.path("/srv/wheels"))
    inside.path("/etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /srv/wheels\n")
    inside.check("sh", "-ec", "python3 -m venv /opt/client; /opt/client/bin/pip install slixmpp")


def prosody(machine: Booted) -> None:
    """Start Prosody; people have their accounts."""
    machine.check("systemctl start prosody")
    for name, password in PEOPLE.items():
        machine.check(f"prosodyctl register {name} {HOST} {password}")


def ejabberd(machine: Booted) -> None:
    """Start ejabberd; people have their accounts."""
    machine.check("systemctl start ejabberd && ejabberdctl started")
    for name, password in PEOPLE.items():
        machine.check(f"ejabberdctl register {name} {HOST} {password}")


def install(machine: Booted) -> None:
    """Install the Debian package."""
    machine.check("apt-get install --quiet --yes ./dist/*.deb")
