"""`python -m conformance` is the same as `xmpp-agent-conformance`."""

from conformance.cli import main

main()
