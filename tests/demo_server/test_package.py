"""The embedded server without the extra that it needs."""

import subprocess
import sys

import pytest

from component.cli.frame import ExitCode

SENTENCE = (
    "The demo's own XMPP server needs the package {name}: pip install 'xmpp-agent-component[demo]'"
)
WITHOUT = "import sys; sys.modules['{name}'] = None; sys.argv = ['xmpp-agent', 'demo']; {rest}"


def run_without(name: str, rest: str) -> subprocess.CompletedProcess[str]:
    """Run Python code where a package is not installed."""
    code = WITHOUT.format(name=name, rest=rest)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("name", ["scramp", "trustme"])
def test_importing_it_says_how_to_install_the_extra(name: str) -> None:
    done = run_without(name, "import demo_server.router")
    assert done.returncode != 0
    assert done.stderr.endswith(f"ImportError: {SENTENCE.format(name=name)}\n")


def test_the_demo_says_so_too() -> None:
    rest = "from component.cli.main import main; main()"
    done = run_without("scramp", rest)
    assert done.returncode == ExitCode.FAILURE
    assert SENTENCE.format(name="scramp") in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
