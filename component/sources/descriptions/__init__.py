"""Descriptions of skills that the operator has not written: admins approve them, by their digests.

A model reads them with every prompt, so whoever writes them can try to instruct it.
"""
