"""For the tests of skills: a context that records what a skill does, and calls as callers make
them.

```python
from xmpp_agent.testing import FakeContext, call

def test_lunch_is_ordered() -> None:
    context = FakeContext(answers=[{"dish": "soup", "portions": 2}])
    result = call(order_lunch, {"day": "Monday"}, context)
    assert result.outputs[0].text == "Ordered for Monday."
    assert context.steps == ["menu", "order"]
```
"""

from component.skills.fake_context import FakeContext, call

__all__ = ["FakeContext", "call"]
