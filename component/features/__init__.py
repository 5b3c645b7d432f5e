"""The things that the service does, each in a folder of its own.

A folder has, besides its logic, at most these files:

- `__init__.py`: `TURNED_ON_BY`, the sections that turn it on, or without sections `is_used`
- `settings.py`: its sections of `agent.toml`, as `SECTIONS`, `check` for what they
  demand, `is_used`, and `described_sources`, which yields names of
  `Settings.described_sources`; each of them only where it is needed
- `rows.py`: its tables and all statements on them, and `is_unfinished` if it may have work to end
  when the settings do not turn it on any more
- `handlers.py`, `node.py`: what it serves
- `commands.py`, `skills.py`
- `feature.py`: `FEATURE`, the subclass of `component.features.feature.Feature`

The list of them is `component.app.features.FEATURES`; nothing else knows a feature by its name.
"""
