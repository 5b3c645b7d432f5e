"""How the agent is connected."""

from typing import Any


def test_client_mode_is_one_sentence_whatever_else_it_brings(problems: Any) -> None:
    (only,) = problems(
        '[server]\nmode = "client"\njid = "bot@localhost"\npassword = "x"\ntls_verify = false\n'
    )
    assert only.startswith('agent.toml, line 2: server.mode is "client": ')
    assert "later release" in only
