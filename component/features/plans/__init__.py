"""Plans of people and agents: skills that start and change them, and a command."""
