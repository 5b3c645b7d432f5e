"""Calls as models write them, in the forms of their templates."""

BAR, LINE = "\uff5c", "\u2581"
"""The bars and lines in the marks of DeepSeek."""
ARGUMENTS = '{"zone": "UTC", "days": 7}'
CALL = f'{{"name": "clock", "arguments": {ARGUMENTS}}}'


def deepseek(name: str) -> str:
    return f"<{BAR}{name.replace(' ', LINE)}{BAR}>"


def kimi(number: int, name: str, arguments: str) -> str:
    return (
        f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{arguments}"
        "<|tool_call_end|>"
    )


def invoked(prefix: str = "", attribute: str = "") -> str:
    """A call in XML; the attribute says whether a value is a text, as DeepSeek does."""
    text, other = (f' {attribute}="true"', f' {attribute}="false"') if attribute else ("", "")
    return (
        f'<{prefix}invoke name="clock">\n'
        f'<{prefix}parameter name="zone"{text}>UTC</{prefix}parameter>\n'
        f'<{prefix}parameter name="days"{other}>7</{prefix}parameter>\n</{prefix}invoke>'
    )


CODER = (
    "<function=clock>\n<parameter=zone>\nUTC\n</parameter>\n"
    "<parameter=days>\n7\n</parameter>\n</function>"
)
BEGIN, END = deepseek("tool calls begin"), deepseek("tool calls end")
ONE, ENDED, SEP = (deepseek(f"tool {word}") for word in ("call begin", "call end", "sep"))

SAMPLES = {
    "Kimi": "<|tool_calls_section_begin|>"
    + kimi(0, "clock", ARGUMENTS)
    + "<|tool_calls_section_end|>",
    "Kimi without its section": kimi(0, "clock", ARGUMENTS),
    "Qwen without its opening tag": f"{CALL}\n</tool_call>",
    "Qwen Coder": f"<tool_call>\n{CODER}\n</tool_call>",
    "Qwen Coder without its opening tag": f"{CODER}\n</tool_call>",
    "MiniMax": f"<minimax:tool_call>\n{invoked()}\n</minimax:tool_call>",
    "MiniMax M1": f"<tool_calls>\n{CALL}\n</tool_calls>",
    "XML": f"<function_calls>\n{invoked()}\n</function_calls>",
    "DeepSeek V3": f"{BEGIN}{ONE}function{SEP}clock\n```json\n{ARGUMENTS}\n```{ENDED}{END}",
    "DeepSeek V3.1": f"{BEGIN}{ONE}clock{SEP}{ARGUMENTS}{ENDED}{END}",
    "DeepSeek V3.2": f"<{BAR}DSML{BAR}function_calls>\n"
    + invoked(f"{BAR}DSML{BAR}", "string")
    + f"\n</{BAR}DSML{BAR}function_calls>",
    "GLM": "<tool_call>clock\n<arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>7</arg_value>\n</tool_call>",
    "Llama": f'<|python_tag|>{{"name": "clock", "parameters": {ARGUMENTS}}}<|eom_id|>',
    "Llama with a function": f"<function=clock>{ARGUMENTS}</function>",
    "Llama with Python": '<|python_tag|>clock(zone="UTC", days=7)',
    "Llama 4": '<|python_start|>[clock(zone="UTC", days=7)]<|python_end|>',
    "Mistral": f"[TOOL_CALLS]clock[ARGS]{ARGUMENTS}",
    "Mistral with a list": f"[TOOL_CALLS][{CALL}]",
    "Hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "Granite": f"<|tool_call|>[{CALL}]",
    "Granite 3": f"<tool_call>[{CALL}]",
    "Granite with a function": f"<function_call>{CALL}",
    "LFM2": '<|tool_call_start|>[clock(zone="UTC", days=7)]<|tool_call_end|>',
    "Kimi with one section": "<|tool_call_section_begin|>"
    + kimi(0, "clock", ARGUMENTS)
    + "<|tool_call_section_end|>",
    "Qwen with the end of its turn": f"<tool_call>\n{CALL}\n</tool_call><|im_end|>",
    "Phi": f"<|tool_call|>[{CALL}]<|/tool_call|>",
    "Phi 3": f"functools[{CALL}]",
    "Gemma": '```tool_code\nclock(zone="UTC", days=7)\n```',
    "Gemma with print": '```tool_code\nprint(clock(zone="UTC", days=7))\n```',
    "Cohere": '<|START_ACTION|>[\n  {"tool_call_id": "0", "tool_name": "clock", "parameters": '
    f"{ARGUMENTS}}}\n]<|END_ACTION|>",
    "Seed": f"<seed:tool_call>\n{CODER}\n</seed:tool_call>",
    "Hunyuan": f"<tool_calls>\n<tool_call>clock\n```json\n{ARGUMENTS}\n```\n</tool_call>\n"
    "</tool_calls>",
    "InternLM": f'<|action_start|><|plugin|>{{"name": "clock", "parameters": {ARGUMENTS}}}'
    "<|action_end|>",
    "Nemotron": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
}
"""By model, a call of `clock` with `ARGUMENTS`."""
