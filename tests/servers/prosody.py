"""A real Prosody for tests: Debian's configuration, and the component of docs/how-to/prosody.md."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.servers import shipped
from tests.servers.base import Server

# What the tests set beside Debian's own settings. The component comes from the guide: it is written
# to a file of its own, which the packaged configuration includes.
OWN = """\
run_as_root = true
data_path = {data}
ssl = {{ key = {key}; certificate = {certificate} }}
interfaces = {{ {address} }}
c2s_ports = {{ {c2s_port} }}
c2s_direct_tls_ports = {{ }}
s2s_direct_tls_ports = {{ }}
http_ports = {{ }}
https_ports = {{ }}
{federation}
{hosts}"""
# Server names are those of /etc/hosts: tests ask no resolver.
FEDERATED = """\
s2s_ports = {{ {s2s_port} }}
s2s_require_encryption = false
unbound = {{ hoststxt = "/etc/hosts"; resolvconf = false }}
"""
LOG = """\
	{ levels = { "error" }; to = "syslog";  };
"""


def _quote(value: object) -> str:
    """Write a string as Lua does; JSON's escapes of quotes and backslashes are Lua's too."""
    return json.dumps(str(value), ensure_ascii=False)


class Prosody(Server):
    """Prosody from Debian's package `prosody`."""

    name = "prosody"
    package = "prosody"
    program = "prosody"
    second_has_own_port = False

    def _configure(self, components: Sequence[str], added: str) -> None:
        (self.directory / "prosody.cfg.lua").write_text(self._main())
        extra = self.directory / "conf.d"
        extra.mkdir(exist_ok=True)
        (extra / "agent.cfg.lua").write_text(components[0])
        # They share one listener, which the first one has opened.
        alone = [block[block.index("Component ") :] for block in components]
        if self.second is not None:
            alone.append(alone[0].replace(self.component_domain, self.second))
        (extra / "further.cfg.lua").write_text("\n".join(alone[1:]))
        (extra / "later.cfg.lua").write_text(added)
        for host in self.hosts:
            self._make_accounts(host)

    def _make_accounts(self, host: str) -> None:
        """Write them where Prosody keeps them; it hashes the password at the first login."""
        accounts = self.directory / "data" / self._file_name(host) / "accounts"
        if not accounts.exists():
            accounts.mkdir(parents=True)
            for account, password in self.accounts.items():
                (accounts / f"{self._file_name(account)}.dat").write_text(
                    f'return {{ ["password"] = {_quote(password)} }};\n'
                )

    def _main(self) -> str:
        """Debian's main configuration file, with the archive on and with what the tests need."""
        federates = self.s2s_port is not None
        own = OWN.format(
            data=_quote(self.directory / "data"),
            key=_quote(self.key),
            certificate=_quote(self.certificate),
            address=_quote(self.address),
            c2s_port=self.c2s_port,
            hosts="\n".join(f"VirtualHost {_quote(host)}" for host in reversed(self.hosts)),
            federation=FEDERATED.format(s2s_port=self.s2s_port) if federates else "",
        )
        text = shipped.change(
            shipped.read(shipped.PROSODY, self.package),
            ('--"mam";', '"mam";'),
            ('"/run/prosody/prosody.pid"', _quote(self.directory / "prosody.pid")),
            ('"/var/log/prosody/prosody.log"', _quote(self._log)),
            ('"/var/log/prosody/prosody.err"', _quote(self.directory / "prosody.err")),
            (LOG, ""),
            ('certificates = "certs"', f"certificates = {_quote(self.directory)}"),
            ('VirtualHost "localhost"\n', own + "\n"),
        )
        if federates:
            text = shipped.change(text, ("s2s_secure_auth = true", "s2s_secure_auth = false"))
        else:
            off = "modules_disabled = {\n"
            text = shipped.change(text, (off, f'{off}\t"s2s"; "dialback";\n'))
        if self.unlimited:
            on = '"limits"; -- Enable'
            text = shipped.change(text, (on, f"-- off: {self.unlimited}\n\t\t--{on}"))
        return text

    def _command(self) -> tuple[list[str], dict[str, str]]:
        return ["prosody", "--config", str(self.directory / "prosody.cfg.lua"), "-F"], {}

    def _log_files(self) -> Iterable[Path]:
        return (self._log,)

    @property
    def _log(self) -> Path:
        return self.directory / "prosody.log"

    @staticmethod
    def _file_name(name: str) -> str:
        """Encode a host or an account as Prosody's file storage names it (util.datamanager)."""
        return re.sub(rb"[^A-Za-z0-9]", lambda c: b"%%%02x" % ord(c[0]), name.encode()).decode()
