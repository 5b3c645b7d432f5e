"""The control socket: connects the command line with the service that runs on the same machine."""
