"""Which characters a text may have: for packages that store texts and know nothing of XML."""

from xep.binding.escaping import without_forbidden

__all__ = ["without_forbidden"]
