"""Classifies the errors of providers: by their codes, then by the HTTP status, then by the text.

Providers agree on the status codes and on little else. A code is compared as a whole, so that no
word decides that a message merely contains. A text counts only where neither code nor status says
what happened, and as a sentence that servers are known to write
(tests/component/models/real_errors.py has them).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "answer_too_long",
    "bad_call",
    "filtered",
    "forbidden",
    "key",
    "overflow",
    "rate_limit",
    "redirect",
    "refused",
    "rejected",
    "unavailable",
    "unknown_model",
    "unpaid",
]
"""What an error means; docs/reference/providers.md describes each kind."""


def _by_code(codes: Mapping[Kind, str]) -> Mapping[str, Kind]:
    return {code: kind for kind, some in codes.items() for code in some.split()}


# Codes that say what happened, in lower case.
_CODES: Final = _by_code(
    {
        "overflow": (
            "context_length_exceeded context_window_exceeded exceed_context_size_error"
            " model_context_window_exceeded model_max_prompt_tokens_exceeded request_too_large"
            " string_above_max_length array_above_max_length 1261 1039"  # Zhipu, MiniMax
        ),
        "rate_limit": (
            "rate_limit_exceeded rate_limit_error rate_limit_reached_error rate_limited"
            " too_many_requests requests_limit_exceeded tokens_limit_exceeded resource_exhausted"
            " limit_requests limit_burst_rate throttling throttling.ratequota"
            " throttling.burstrate throttling.allocationquota throttlingexception"
            " service_tier_capacity_exceeded capacity_exceeded 1302 1305"  # Zhipu
        ),
        "unpaid": (
            "insufficient_quota insufficient_balance insufficient_credits insufficient_funds"
            " billing_error billing_not_active billing_hard_limit_reached credit_limit"
            " exceeded_current_quota_error arrearage accountoverdueerror payment_required"
            " 1113 30001 1008"  # Zhipu, SiliconFlow, MiniMax
        ),
        "filtered": (
            "content_filter content_policy_violation responsibleaipolicyviolation"
            " data_inspection_failed datainspectionfailed sensitivecontentdetected"
            " inputtextsensitivecontentdetected prohibited_content moderation_blocked"
            " 1301 1026 1027"  # Zhipu, MiniMax
        ),
        "key": (
            "invalid_api_key api_key_invalid incorrect_api_key authentication_error"
            " unauthenticated account_deactivated 1004"  # MiniMax
        ),
        "forbidden": "permission_error unsupported_country_region_territory",
        "unknown_model": (
            "model_not_found model_not_available model_decommissioned invalid_model"
            " unknown_model deploymentnotfound model_not_exist 1211 20012"  # Zhipu, SiliconFlow
        ),
        # The model has written a call, or JSON, that the server cannot read (Groq).
        "bad_call": (
            "tool_use_failed json_validate_failed output_parse_failed malformed_function_call"
        ),
    }
)
# Codes that servers also use for everything else: they count last, and only without a status.
_GENERAL: Final = _by_code(
    {
        "rejected": (
            "invalid_request_error invalid_argument invalid_prompt badrequesterror"
            " validationexception invalidparameter invalid_value unsupported_parameter"
            " unsupported_value invalid_function_parameters invalid_encrypted_content"
            " invalid_image invalid_image_format image_parse_error"
        ),
        "unknown_model": "not_found_error not_found notfounderror",
        "forbidden": "permission_denied",
    }
)
_STATUSES: Final[Mapping[int, Kind]] = {
    301: "redirect",
    302: "redirect",
    303: "redirect",
    307: "redirect",
    308: "redirect",
    401: "key",
    402: "unpaid",
}
_PASSING: Final = (408, 409, 424, 425, 499)  # 424: Bedrock, 499: a gateway that was left

_ABOVE_LENGTH: Final = ("string_above_max_length", "array_above_max_length")
_INVALID_PATH: Final = re.compile(r"\bInvalid (?:parameter:? ?)?'([A-Za-z_]+[\w.\[\]]*)':")
# What becomes shorter with the conversation: not the names and ids in it.
_CONVERSATION: Final = re.compile(
    r"(messages|input|prompt|contents)"
    r"([\[.]\d+\]?([\[.](content|text|output|arguments|function|tool_calls|\d+)\]?)*)?"
)
_ELSEWHERE: Final = re.compile(
    r"(body\.)?(tools|functions|tool_choice|user|metadata|response_format|text|stop|model|seed"
    r"|safety_identifier|prompt_cache_key|extra_body|reasoning|service_tier)\b"
)

_TOO_LONG: Final = re.compile(r"(string|array) too long", re.IGNORECASE)

_OVERFLOW: Final = re.compile(
    r"(maximum|max) (context|prompt|input) length"
    r"|exceed(s|ed)?( the)?( available| maximum| max| model'?s?| this model'?s?| configured)*"
    r"( input)? context|ContextWindowExceeded"
    r"|context (size|length|window|limit)\b.{0,40}\b(exceed|overflow|too (small|long|large))"
    r"|context length (is|of) only|(configured|available) context size"
    r"|(longer|larger|greater) than (the |this )?(maximum )?(model|context)('?s)?"
    r"( context| maximum)* (length|size|window)"
    r"|(prompt|input|inputs|request|conversation) (\([^)]{0,60}\) )?(is|are) too (long|large)\b"
    r"|prompt too long|prompt (has )?exceeds|model max length exceeded"
    r"|prompt length.{0,40}(exceeds|greater than)"
    r"|(input )?token count.{0,60}exceeds|too many (input )?tokens\b(?! per|, please wait)"
    r"|exceed(s|ed)? (the )?(model|maximum|max)('s)? (token limit|allowed length|number of tokens)"
    r"|exceed(s|ed)? (the )?maximum allowed input length|input (length|tokens).{0,60}exceed"
    r"|input tokens.{0,20}cannot exceed|tokens in request more than max"
    r"|n_keep.{0,20}n_ctx|range of input length|token limit exceeded"
    r"|must have less than [0-9]+ tokens"
    r"|tokens in the prompt exceeds|(prompt|input).{0,80}exceeds the limit of [0-9]"
    r"|too large for model with|reduce the length of (the|your|either)"
    r"|tokens? \+ .{0,40}must be (<=|less than)|超过模型(输入|最大)?长度",
    re.IGNORECASE | re.DOTALL,
)
# The requested maximum length of the answer is too long for the model, with any question.
_ANSWER_TOO_LONG: Final = re.compile(
    r"max_(completion_|new_|output_)?tokens['`\" ]{0,3}"
    r"(is too large(?!.*maximum context length)|should be|must be (less|at most|between)|\("
    r"|exceeds|: Input should|: [0-9]+ >)|range of max_(completion_)?tokens"
    r"|supports at most [0-9,]+ (completion|output) tokens",
    re.IGNORECASE | re.DOTALL,
)
_RATE: Final = re.compile(
    r"rate[- ]limit(ed)?\b(?!_)|too many requests|tokens per (min|minute|day)\b"
    r"|requests per (min|minute|day)\b|\bTPM\b|throttl(ed|ing)\b|too many tokens, please wait",
    re.IGNORECASE,
)
_FILTERED: Final = re.compile(
    r"content management policy|content filtering policy|flagged as potentially violating"
    r"|your (input|prompt|request) was flagged|violates .{0,40}(guidelines|polic(y|ies))"
    r"|blocked by .{0,40}\bsafety\b|Content Exists Risk|may contain inappropriate content"
    r"|considered high risk|result of our safety system|new_sensitive",
    re.IGNORECASE,
)
# The template of the model fails on the messages: llama.cpp says so with HTTP 500. The same of
# schemas that it cannot make a grammar of.
_TEMPLATE: Final = re.compile(
    r"roles must alternate|unexpected role|system (role|message|prompt)s? (is |are )?not supported"
    r"|tool[ _]call ids? (should|must)|schema conversion failed|failed to parse grammar"
    r"|failed to (load|decode|process) (the |input )?image|image: unknown format"
    r"|image input is not supported",
    re.IGNORECASE,
)
# OpenAI, Groq: one request is larger than what they take in a minute, so no waiting helps.
_LARGER: Final = re.compile(
    r"\brequest too large\b.{0,200}\blimit:? (\d{1,12}), requested:? (\d{1,12})\b",
    re.IGNORECASE | re.DOTALL,
)
_QUOTA: Final = re.compile(r"exceeded your current quota", re.IGNORECASE)
_UNPAID: Final = re.compile(
    r"credit balance is too low|insufficient (account )?(balance|credits?|funds|quota)\b"
    r"|exceeded your current quota|balance is (insufficient|not enough)|余额不足|payment required"
    r"|billing hard limit|check your billing details|used all available credits"
    r"|monthly spending limit|account is in good standing|doesn't have any credits"
    r"|reached your specified (API )?usage limits"
    r"|suspended.{0,120}(billing|balance|invoice|recharge)",
    re.IGNORECASE | re.DOTALL,
)
_KEY: Final = re.compile(
    r"(invalid|incorrect|missing|expired) (x-)?api[- ]key|api key (is |has )?(not valid|missing"
    r"|invalid|expired|been revoked)|no auth credentials",
    re.IGNORECASE,
)
_NO_MODEL: Final = re.compile(
    r"model(:? ['`\"]?[\w./:@-]{2,120}['`\"]?)? (does not exist|not exist|not found|was not found"
    r"|is not found|is not available|has been (deprecated|decommissioned|retired|shut ?down)"
    r"|is no longer (supported|available))|is not a valid model id|^invalid model\b"
    r"|model identifier is invalid|no models? loaded|模型不存在",
    re.IGNORECASE,
)
_FORBIDDEN: Final = re.compile(r"user location is not supported", re.IGNORECASE)
_BAD_CALL: Final = re.compile(
    r"failed to call a function\. please adjust|see 'failed_generation'", re.IGNORECASE
)
# What a model or its hosts cannot do, which a request in another form need not ask for.
_UNABLE: Final = re.compile(r"no endpoints found that support|^item with id ", re.IGNORECASE)
_TEXTS: Final[Sequence[tuple[Kind, re.Pattern[str]]]] = (
    ("bad_call", _BAD_CALL),
    ("forbidden", _FORBIDDEN),
    ("unpaid", _UNPAID),
    ("filtered", _FILTERED),
    ("key", _KEY),
    ("unknown_model", _NO_MODEL),
    ("rate_limit", _RATE),
    ("rejected", _TEMPLATE),
)


def fault_kind(
    status: int, codes: Sequence[str], message: str, field: str = "", *, waits: bool = False
) -> Kind:
    """Say what an error means. `waits` says whether the provider says when to ask again; the others
    are those of `component.models.faults.Fault`.
    """
    field = field or named_field(message)
    elsewhere = bool(field) and (
        _ELSEWHERE.match(field) is not None
        # Gateways take a long id in the conversation for a long conversation.
        or (_TOO_LONG.search(message) is not None and _CONVERSATION.fullmatch(field) is None)
    )
    if status == 413 or _is_beyond_rate(message):
        # Its code is that of a rate limit.
        return "rejected" if elsewhere else "overflow"
    if elsewhere and any(code.lower() in _ABOVE_LENGTH for code in codes):
        return "rejected"  # whatever status a gateway gives it
    for code in codes:
        kind = _CODES.get(code.lower())
        if kind == "overflow" and (
            elsewhere or status in (401, 402, 403, 404, 429) or _is_other_length(code, field)
        ):
            continue
        if kind is not None:
            return kind
    if status in _STATUSES:
        return _STATUSES[status]
    if status == 429:
        is_unpaid = _UNPAID.search(message) and not _is_passing(message, waits)
        return "unpaid" if is_unpaid else "rate_limit"
    if status == 404:
        return "rejected" if _UNABLE.search(message) else "unknown_model"
    if not elsewhere and (found := _of_text(status, message, waits)) is not None:
        return found
    if status in (400, 422):
        return "rejected"
    if status >= 500 or status in _PASSING:
        return "unavailable"
    for code in codes if status == 0 else ():
        if (kind := _GENERAL.get(code.lower())) is not None:
            return kind
    return "forbidden" if status == 403 else "refused" if status else "unavailable"


def named_field(message: str) -> str:
    """The field that a text of OpenAI says is invalid: `Invalid 'tools[0].name': …`."""
    found = _INVALID_PATH.search(message)
    return found[1] if found else ""


def _of_text(status: int, message: str, waits: bool) -> Kind | None:
    if status in (0, 400, 422) and _ANSWER_TOO_LONG.search(message):
        return "answer_too_long"
    if status != 403 and _OVERFLOW.search(message) and not _RATE.search(message):
        return "overflow"
    for kind, pattern in _TEXTS:
        if pattern.search(message) and not (kind == "unpaid" and _is_passing(message, waits)):
            return kind
    return None


def _is_beyond_rate(message: str) -> bool:
    larger = _LARGER.search(message)
    return larger is not None and int(larger[2]) > int(larger[1])


def _is_passing(message: str, waits: bool) -> bool:
    """Whether a quota is one of time. Gemini has the sentence of OpenAI, with a delay beside it."""
    return waits and _QUOTA.search(message) is not None


def _is_other_length(code: str, field: str) -> bool:
    """Whether a text is too long that is not the conversation, such as an id in it."""
    return code in _ABOVE_LENGTH and _CONVERSATION.fullmatch(field) is None
