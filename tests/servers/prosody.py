"""A real Prosody for tests, configured by docs/prosody.md."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from tests.servers.base import Server

# Everything but the component, which comes from the guide: it is written to a file of its own
# and included at the end, exactly as Debian's main configuration does it.
MAIN = """\
run_as_root = true
pidfile = {pidfile}
data_path = {data}
certificates = {directory}
ssl = {{ key = {key}; certificate = {certificate} }}
log = {{ info = {log} }}
interfaces = {{ {address} }}
c2s_ports = {{ {c2s_port} }}
c2s_direct_tls_ports = {{ }}
c2s_require_encryption = false
allow_unencrypted_plain_auth = true
authentication = "internal_hashed"
modules_enabled = {{
  "adhoc"; "blocklist"; "carbons"; "disco"; "offline"; "pep"; "ping"; "posix"; "private"; "roster";
  "saslauth"; "smacks"; "tls"; "vcard4"; "version"; {archive_modules}{federation_modules}
}}
{federation}

VirtualHost {host}

Include "conf.d/*.cfg.lua"
"""
ALONE = 'modules_disabled = { "s2s" }'
# Server names are those of /etc/hosts: tests ask no resolver.
FEDERATED = """\
s2s_ports = {{ {s2s_port} }}
s2s_secure_auth = false
s2s_require_encryption = false
unbound = {{ hoststxt = "/etc/hosts"; resolvconf = false }}
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

    def _configure(self, component_block: str) -> None:
        federates = self.s2s_port is not None
        main = MAIN.format(
            pidfile=_quote(self.directory / "prosody.pid"),
            data=_quote(self.directory / "data"),
            directory=_quote(self.directory),
            key=_quote(self.key),
            certificate=_quote(self.certificate),
            log=_quote(self._log),
            address=_quote(self.address),
            c2s_port=self.c2s_port,
            host=_quote(self.host),
            federation=FEDERATED.format(s2s_port=self.s2s_port) if federates else ALONE,
            archive_modules='"csi"; "csi_simple"; "mam"; ' if self.archive else "",
            federation_modules='"s2s"; "dialback";' if federates else "",
        )
        (self.directory / "prosody.cfg.lua").write_text(main)
        extra = self.directory / "conf.d"
        extra.mkdir(exist_ok=True)
        (extra / "agent.cfg.lua").write_text(component_block)
        if self.second is not None:
            block = component_block[component_block.index("Component ") :]
            named = block.replace(self.component_domain, self.second)
            (extra / "second.cfg.lua").write_text(named)
        # Written where Prosody keeps accounts; it hashes the password at the first login.
        accounts = self.directory / "data" / self._file_name(self.host) / "accounts"
        if not accounts.exists():
            accounts.mkdir(parents=True)
            for account, password in self.accounts.items():
                (accounts / f"{self._file_name(account)}.dat").write_text(
                    f'return {{ ["password"] = {_quote(password)} }};\n'
                )

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
