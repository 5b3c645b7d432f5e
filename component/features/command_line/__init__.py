"""The commands of the operator, over a socket on this machine."""
