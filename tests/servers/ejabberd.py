"""A real ejabberd for tests: Debian's configuration, with the component of docs/how-to/ejabberd.md.

It runs without its init script and as an Erlang node without a name: so there is no port mapper
(epmd) to leave behind, no cookie to share, and nothing that two runs could collide over.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.servers import shipped
from tests.servers.base import Server, ServerError


def _quote(value: object) -> str:
    """Write a string as YAML and as Erlang do: both read JSON's."""
    return json.dumps(str(value), ensure_ascii=False)


def _binary(text: str) -> str:
    """Write a text as an Erlang binary of its UTF-8 bytes, whatever locale Erlang believes in."""
    return f"<<{','.join(map(str, text.encode()))}>>"


class Ejabberd(Server):
    """The server of Debian's package `ejabberd`."""

    name = "ejabberd"
    package = "ejabberd"
    program = "erl"
    second_has_own_port = True

    def _configure(self, components: Sequence[str], added: str) -> None:
        pem = self.directory / "ejabberd.pem"
        pem.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())
        blocks = list(components)
        if self.second is not None:
            beside = components[0].replace(str(self.component_port), str(self.second_port))
            blocks.append(beside.replace(self.component_domain, self.second))
        (self.directory / "ejabberd.yml").write_text(self._main(pem, "".join(blocks) + added))
        self._ready.unlink(missing_ok=True)

    def _main(self, pem: Path, components: str) -> str:
        """Debian's configuration, with the archive on and with what the tests need.

        Of its listeners there are those for clients and, if this server federates, for servers: the
        ports of the others could belong to somebody else on this machine.
        """
        text = shipped.read(shipped.EJABBERD, self.package)
        listen = shipped.between(text, "listen:\n", "\n\n\n")
        ports = {5222: self.c2s_port, 5269: self.s2s_port}
        listeners = "listen:\n"
        for default, port in ports.items():
            if port is not None:
                (entry,) = re.findall(rf"  -\n    port: {default}\n(?:    .*\n?)+", listen)
                place = f"ip: {_quote(self.address)}"
                changes = (f"port: {default}", f"port: {port}"), ('ip: "::"', place)
                listeners += shipped.change(entry, *changes).rstrip("\n") + "\n"
        archive = shipped.between(text, "  ## mod_mam:\n", "  mod_mqtt:")
        switched_on = re.sub("^  ## ", "  ", archive, flags=re.MULTILINE)
        certificate = f"- {_quote(pem)}\nca_file: {_quote(self.ca_file)}"
        hosts = "".join(f"  - {_quote(host)}\n" for host in self.hosts)
        text = shipped.change(
            text,
            ("hosts:\n  - localhost\n", f"hosts:\n{hosts}"),
            ('- "/etc/ejabberd/ejabberd.pem"', certificate),
            (listen, listeners + components),
            (archive, switched_on),
        )
        if self.s2s_port is None:
            text = shipped.change(text, ("s2s_use_starttls: required", "s2s_access: none"))
        else:
            text = shipped.change(text, ("use_starttls: required", "use_starttls: optional"))
        if self.unlimited:
            on = "    normal: all\n"
            text = shipped.change(text, (on, f"    # unlimited: {self.unlimited}\n    none: all\n"))
        return text

    def _command(self) -> tuple[list[str], dict[str, str]]:
        # The accounts are made from inside, after the start: no control script to wait for.
        # After a restart they exist already, which is as good.
        register = "".join(
            f"case ejabberd_auth:try_register({_binary(account)}, {_binary(host)},"
            f" {_binary(password)}) of ok -> ok; {{error, exists}} -> ok end, "
            for host in self.hosts
            for account, password in self.accounts.items()
        )
        command = ["erl", "-noinput"]
        # Schedulers that spin while idle would take the cores from what the tests measure.
        command += ["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"]
        command += ["-mnesia", "dir", _quote(self.directory / "mnesia")]
        command += ["-ejabberd", "config", _quote(self.directory / "ejabberd.yml")]
        command += ["log_path", _quote(self._log)]
        command += ["-s", "ejabberd", "-eval"]
        command += [f"{register}ok = file:write_file({_quote(self._ready)}, <<>>)."]
        return command, {
            "ERL_LIBS": str(_libraries()),
            "ERL_CRASH_DUMP_SECONDS": "0",  # a killed test run leaves no dump to write
            "HOME": str(self.directory),
        }

    def _log_files(self) -> Iterable[Path]:
        return (self._log,)

    def _accounts_ready(self) -> bool:
        return self._ready.exists()

    @property
    def _log(self) -> Path:
        return self.directory / "ejabberd.log"

    @property
    def _ready(self) -> Path:
        return self.directory / "ready"


def _libraries() -> Path:
    """Find the directory where Debian puts ejabberd's Erlang applications."""
    for found in sorted(Path("/usr/lib").glob("*/ejabberd-*/ebin/ejabberd.app")):
        return found.parents[2]
    raise ServerError(
        "erl is there, ejabberd is not: install the Debian package ejabberd"
        " (apt-get install ejabberd)"
    )
