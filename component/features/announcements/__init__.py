"""Announcements: what an agent publishes to everybody who follows it."""
