"""The commands about memories, for people and operators."""
