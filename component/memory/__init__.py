"""Memories: their files and index, search and recall, and copies in stores of people."""
