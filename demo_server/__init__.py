"""A loopback-only XMPP server for the demo and the tests, and a client for the demo.

It is not part of the service: `xmpp-agent demo` starts it, and it only imports `xep`. The extra
`demo` installs its dependencies.

Raises ImportError, with an instruction to install them, if they are missing.
"""

try:
    import scramp  # type: ignore[import-untyped]  # noqa: F401 - it ships no types
    import trustme  # noqa: F401 - both are used by the modules of this package
except ModuleNotFoundError as missing:
    raise ImportError(
        f"The demo's own XMPP server needs the package {missing.name}:"
        " pip install 'xmpp-agent-component[demo]'",
        name=missing.name,
    ) from missing

from demo_server.certificate import Certificate
from demo_server.server import DemoServer
from demo_server.wire import Direction, Tap

__all__ = ["Certificate", "DemoServer", "Direction", "Tap"]
