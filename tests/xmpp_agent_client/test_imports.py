"""What importing the package imports."""

import subprocess
import sys

import pytest

from tests.packaging.releases import ROOT

_CODE = """
import importlib, sys
before = set(sys.modules)
importlib.import_module(sys.argv[1])
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(names - sys.stdlib_module_names - {"typing_extensions"}))
"""  # which msgspec imports where it is installed


def imported(module: str) -> set[str]:
    """Return the packages outside the standard library that a module imports."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CODE, module],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.ports
def test_callers_get_what_the_guide_installs_for_them() -> None:
    assert imported("xmpp_agent_client") == {"msgspec", "xep", "xmpp_agent_client"}
    with_slixmpp = imported("xmpp_agent_client.slixmpp_plugin")
    assert with_slixmpp >= {"slixmpp", "xmpp_agent_client"}
    assert not with_slixmpp & {"aioxmpp", "anyio", "component", "lxml", "protocol_schemas"}
