"""The models that the service names to its operator: in its status, its first line and traces."""

from component.app.features import make_settings
from component.app.summary import summary
from component.config import Settings
from component.features.service_commands.feature import vitals_of
from component.kernel.monitoring import Monitoring


def settings(**own: str) -> Settings:
    return make_settings(
        server={"component_domain": "agent.example.com", "component_secret": "s"},
        llm={
            "provider": "vllm",
            "model": "main",
            "base_url": "http://m",
            "tiers": {"light": {"provider": "ollama", "model": "small"}},
        },
        agents=[
            {"name": name, "llm": {"provider": "openai", "model": model, "api_key": "k"}}
            for name, model in own.items()
        ],
    )


def test_models_that_agents_have_of_their_own_are_named_too() -> None:
    found = settings(writer="prose", coder="code")
    names = ("vllm main", "ollama small", "openai prose", "openai code")
    assert vitals_of(found, 0).models == names
    assert summary(found, None)["models"] == ", ".join(names)


def test_traces_have_the_provider_of_each_model_also_after_a_reload() -> None:
    providers: dict[str, str] = {}
    monitoring = Monitoring(providers=providers)
    monitoring.replace(settings(writer="prose"))
    assert providers == {"": "vllm", "main": "vllm", "small": "ollama", "prose": "openai"}
    monitoring.replace(settings(coder="code"))
    assert providers == {"": "vllm", "main": "vllm", "small": "ollama", "code": "openai"}
