"""Descriptions of skills that the operator has not written: admins approve them, by their digests.

A model reads descriptions with every prompt, so their authors can try to instruct the model.
"""
