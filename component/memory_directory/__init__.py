"""The directory of all conversations, personas and memories: its layout, and its files."""
