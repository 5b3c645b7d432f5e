"""A real ejabberd for tests, configured by docs/ejabberd.md.

It runs without its init script and as an Erlang node without a name: so there is no port mapper
(epmd) to leave behind, no cookie to share, and nothing that two runs could collide over.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tests.servers.base import Server, ServerError

# Everything but the component, which comes from the guide and goes under `listen:`.
MAIN = """\
hosts:
  - {host}
loglevel: info
certfiles:
  - {pem}
ca_file: {ca_file}
auth_password_format: scram
{federation}
listen:
  -
    port: {c2s_port}
    ip: {address}
    module: ejabberd_c2s
    starttls: true
{listen_federation}{component}
modules:
  mod_adhoc: {{}}
  mod_blocking: {{}}
  mod_caps: {{}}
  mod_carboncopy: {{}}
  mod_disco: {{}}
  mod_offline: {{}}
  mod_ping: {{}}
  mod_privacy: {{}}
  mod_private: {{}}
  mod_pubsub:
    plugins: [flat, pep]
  mod_roster: {{}}
  mod_stream_mgmt: {{}}
  mod_vcard: {{}}
  mod_version: {{}}
{archive_modules}{federation_modules}"""
ARCHIVE = """\
  mod_client_state: {}
  mod_mam:
    default: always
"""
ALONE = "s2s_access: none\n"
FEDERATED = "s2s_use_starttls: optional\n"
LISTEN_FEDERATED = """\
  -
    port: {s2s_port}
    ip: {address}
    module: ejabberd_s2s_in
"""


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

    def _configure(self, component_block: str) -> None:
        pem = self.directory / "ejabberd.pem"
        pem.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())
        federates = self.s2s_port is not None
        if self.second is not None:
            beside = component_block.replace(str(self.component_port), str(self.second_port))
            component_block += beside.replace(self.component_domain, self.second)
        listen = LISTEN_FEDERATED.format(s2s_port=self.s2s_port, address=_quote(self.address))
        main = MAIN.format(
            host=_quote(self.host),
            pem=_quote(pem),
            ca_file=_quote(self.ca_file),
            c2s_port=self.c2s_port,
            address=_quote(self.address),
            component=component_block,
            federation=FEDERATED if federates else ALONE,
            listen_federation=listen if federates else "",
            archive_modules=ARCHIVE if self.archive else "",
            federation_modules="  mod_s2s_dialback: {}\n" if federates else "",
        )
        (self.directory / "ejabberd.yml").write_text(main)
        self._ready.unlink(missing_ok=True)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        # The accounts are made from inside, after the start: no control script to wait for.
        # After a restart they exist already, which is as good.
        register = "".join(
            f"case ejabberd_auth:try_register({_binary(account)}, {_binary(self.host)},"
            f" {_binary(password)}) of ok -> ok; {{error, exists}} -> ok end, "
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
