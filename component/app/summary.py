"""What a service runs with, as values of one line in the log."""

from pathlib import Path

from component import VERSION
from component.config import Settings
from component.kernel.options import model_names


def summary(settings: Settings, configuration: Path | None) -> dict[str, str]:
    """Return the version and the most important settings, by name."""
    agent, policy = settings.agent, settings.policy
    admitted = "everybody of them" if agent.allowed_jids is None else _list(agent.allowed_jids)
    return {
        "version": VERSION,
        "configuration": "none" if configuration is None else str(configuration.absolute()),
        "agents": ", ".join(settings.agent_names),
        "models": ", ".join(model_names(settings)) or "none",
        "database": "PostgreSQL"
        if settings.storage.postgres.get_secret_value()
        else f"SQLite in {settings.storage.path.absolute()}",
        "policy": f"domains {_list(settings.allowed_domains)}; JIDs {admitted};"
        f" {len(agent.admins)} admins; {len(policy.rules)} rules; confirm {policy.confirm}",
    }


def _list(entries: tuple[str, ...]) -> str:
    return ", ".join(entries) or "nobody"
