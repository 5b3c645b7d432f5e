"""Agents elsewhere whose skills this service uses, and that use skills of this one."""

TURNED_ON_BY = ("peer",)
