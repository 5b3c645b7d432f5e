"""The error of a server that cannot be had."""


class ServerError(Exception):
    """A server is missing, did not start or did not stop; the sentence carries the log's end."""
