"""The handlers of stanzas: each decodes a typed request, calls one package, and returns a typed
reply.
"""
