"""A loopback-only XMPP server for the demo and the fast tests."""

from component.devserver.certificate import Certificate
from component.devserver.server import DevServer
from component.devserver.wire import Direction, Tap

__all__ = ["Certificate", "DevServer", "Direction", "Tap"]
