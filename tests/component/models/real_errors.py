"""Errors as providers send them: what they mean, what is done, and what the person hears."""

import json
from typing import Any, Final, Literal

import msgspec

from component.models.fault_kinds import Kind

Api = Literal["chat", "responses", "messages"]
Hears = Literal["NO_MODEL", "REFUSED", "TOO_LONG", "FILTERED"]

USUAL_S: Final = 0.625
"""The first pause where the provider says none."""
LATER: Final = "later"
HEARS: Final[dict[Kind, Hears]] = {
    "answer_too_long": "REFUSED",
    "bad_call": "NO_MODEL",
    "filtered": "FILTERED",
    "forbidden": "REFUSED",
    "key": "REFUSED",
    "overflow": "TOO_LONG",
    "rate_limit": "NO_MODEL",
    "redirect": "REFUSED",
    "refused": "REFUSED",
    "rejected": "REFUSED",
    "unavailable": "NO_MODEL",
    "unknown_model": "REFUSED",
    "unpaid": "REFUSED",
}


class Case(msgspec.Struct, frozen=True):
    """One error.

    Attributes:
        status: the HTTP status; 0 for an event of a stream, with status 200.
        again_s: the pause before the request is sent again; None if it is not.
        left_s: what is left to the caller to wait, because it is more than a minute.
    """

    provider: str
    status: int
    body: Any
    kind: Kind
    api: Api = "chat"
    headers: dict[str, str] = {}
    again_s: float | None = None
    left_s: float | None = None

    def __str__(self) -> str:
        said = json.dumps(self.body)
        return f"{self.provider} {self.status} {self.kind} {said[:40]}"


def _error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message} | more}


def _anthropic(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _gemini(code: int, status: str, message: str, *details: Any) -> list[Any]:
    return [{"error": {"code": code, "message": message, "status": status, "details": [*details]}}]


def _retry(delay: Any) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


_QUOTA: Final = "You exceeded your current quota, please check your plan and billing details."
_QUOTA_FAILURE: Final = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [
        {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
            "quotaValue": "10",
        }
    ],
}
_HELP: Final = {"@type": "type.googleapis.com/google.rpc.Help", "links": []}

CASES: Final[list[Case]] = [
    # -- OpenAI, chat completions and Responses
    Case("OpenAI", 429, _error(
        "Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000,"
        " Used 29000, Requested 2000. Please try again in 2s. Visit"
        " https://platform.openai.com/account/rate-limits to learn more.",
        type="tokens", param=None, code="rate_limit_exceeded"), "rate_limit", again_s=2),
    Case("OpenAI", 429, _error(
        "Rate limit reached for gpt-4o on requests per day (RPD): Limit 200, Used 200, Requested 1."
        " Please try again in 7m12s.", type="requests", code="rate_limit_exceeded"),
        "rate_limit", left_s=432),
    Case("OpenAI", 429, _error("Rate limit reached", code="rate_limit_exceeded"), "rate_limit",
        headers={"Retry-After-Ms": "250"}, again_s=0.25),
    Case("OpenAI", 429, _error(_QUOTA + " For more information on this error, read the docs:"
        " https://platform.openai.com/docs/guides/error-codes/api-errors.",
        type="insufficient_quota", param=None, code="insufficient_quota"), "unpaid"),
    Case("OpenAI", 400, _error("Billing hard limit has been reached",
        type="invalid_request_error", code="billing_hard_limit_reached"), "unpaid"),
    Case("OpenAI", 429, _error("Your account is not active, please check your billing details on"
        " our website.", type="billing_not_active", code="billing_not_active"), "unpaid"),
    Case("OpenAI", 401, _error("Incorrect API key provided: sk-proj-***. You can find your API key"
        " at https://platform.openai.com/account/api-keys.", code="invalid_api_key"), "key"),
    Case("OpenAI", 403, _error("Country, region, or territory not supported",
        type="request_forbidden", code="unsupported_country_region_territory"), "forbidden"),
    Case("OpenAI", 403, _error("Project `proj_1` does not have access to model `gpt-5`",
        type="invalid_request_error", code="model_not_found"), "unknown_model"),
    Case("OpenAI", 404, _error("The model `gpt-9` does not exist or you do not have access to it.",
        type="invalid_request_error", code="model_not_found"), "unknown_model"),
    Case("OpenAI", 400, _error("This model's maximum context length is 128000 tokens. However, your"
        " messages resulted in 130000 tokens. Please reduce the length of the messages.",
        type="invalid_request_error", param="messages", code="context_length_exceeded"),
        "overflow"),
    Case("OpenAI", 400, _error("Your input exceeds the context window of this model. Please adjust"
        " your input and try again.", param="input", code="context_length_exceeded"),
        "overflow", "responses"),
    Case("OpenAI", 400, _error("Invalid 'messages[1].content': string too long. Expected a string"
        " with maximum length 1048576, but got a string with length 1540820 instead.",
        param="messages[1].content", code="string_above_max_length"), "overflow"),
    Case("OpenAI", 400, _error("Invalid 'input[2].content[0].text': string too long. Expected a"
        " string with maximum length 10485760, but got a string with length 11000000 instead.",
        param="input[2].content[0].text", code="string_above_max_length"),
        "overflow", "responses"),
    Case("OpenAI", 400, _error("Invalid 'messages': array too long. Expected an array with maximum"
        " length 2048, but got an array with length 2050 instead.", param="messages",
        code="array_above_max_length"), "overflow"),
    Case("OpenAI", 400, _error("Invalid 'tools[0].function.description': string too long. Expected"
        " a string with maximum length 1024, but got a string with length 2000 instead.",
        param="tools[0].function.description", code="string_above_max_length"), "rejected"),
    Case("OpenAI", 400, _error("Invalid 'tools': array too long. Expected an array with maximum"
        " length 128, but got an array with length 150 instead.", param="tools",
        code="array_above_max_length"), "rejected"),
    Case("OpenAI", 400, _error("Invalid 'messages[2].tool_calls[0].id': string too long. Expected a"
        " string with maximum length 40, but got a string with length 46 instead.",
        param="messages[2].tool_calls[0].id", code="string_above_max_length"), "rejected"),
    Case("OpenAI", 400, _error("Invalid 'user': string too long. Expected a string with maximum"
        " length 64, but got a string with length 80 instead.", param="user",
        code="string_above_max_length"), "rejected"),
    Case("OpenAI", 400, _error("Invalid 'metadata.note': string too long. Expected a string with"
        " maximum length 512, but got a string with length 600 instead.",
        code="string_above_max_length"), "rejected", "responses"),
    Case("OpenAI", 400, _error("max_tokens is too large: 100000. This model supports at most 16384"
        " completion tokens, whereas you provided 100000.", param="max_tokens"),
        "answer_too_long"),
    Case("OpenAI", 400, _error("Invalid prompt: your prompt was flagged as potentially violating"
        " our usage policy. Please try again with a different prompt.", code="invalid_prompt"),
        "filtered", "responses"),
    Case("OpenAI", 500, _error("The server had an error while processing your request. Sorry about"
        " that!", type="server_error"), "unavailable", again_s=USUAL_S),
    Case("OpenAI", 503, _error("That model is currently overloaded with other requests.",
        type="server_error", code="engine_overloaded"), "unavailable",
        headers={"Retry-After": "3"}, again_s=3),
    Case("OpenAI", 0, {"type": "error", "code": "rate_limit_exceeded", "message": "Rate limit"
        " reached. Please try again in 120ms.", "param": None},
        "rate_limit", "responses", again_s=0.12),
    Case("OpenAI", 0, {"type": "response.failed", "response": {"status": "failed", "error":
        {"code": "server_error", "message": "The model failed."}}},
        "unavailable", "responses", again_s=USUAL_S),
    Case("OpenAI", 0, {"type": "response.failed", "response": {"status": "failed", "error":
        {"code": "insufficient_quota", "message": _QUOTA}}}, "unpaid", "responses"),
    Case("OpenAI", 0, {"type": "error", "code": "invalid_encrypted_content", "message": "The"
        " encrypted content for item rs_1 could not be verified.", "param": None},
        "rejected", "responses"),
    # -- Azure
    Case("Azure", 429, _error("Requests to the ChatCompletions_Create Operation under Azure OpenAI"
        " API version 2024-10-21 have exceeded token rate limit of your current OpenAI S0 pricing"
        " tier. Please retry after 20 seconds.", code="429"), "rate_limit", again_s=20),
    Case("Azure", 400, _error("The response was filtered due to the prompt triggering Azure"
        " OpenAI's content management policy.", param="prompt", code="content_filter",
        innererror={"code": "ResponsibleAIPolicyViolation"}), "filtered"),
    Case("Azure", 400, _error("Bad request.", code=None,
        innererror={"code": "ResponsibleAIPolicyViolation"}), "filtered"),
    Case("Azure", 404, _error("The API deployment for this resource does not exist.",
        code="DeploymentNotFound"), "unknown_model"),
    Case("Azure", 401, {"statusCode": 401, "message": "Unauthorized. Access token is missing,"
        " invalid, audience is incorrect, or have expired."}, "key"),
    # -- Anthropic
    Case("Anthropic", 429, _anthropic("rate_limit_error", "This request would exceed your"
        " organization's rate limit of 40,000 input tokens per minute."), "rate_limit",
        "messages", {"retry-after": "12"}, again_s=12),
    Case("Anthropic", 529, _anthropic("overloaded_error", "Overloaded"), "unavailable",
        "messages", again_s=USUAL_S),
    Case("Anthropic", 500, _anthropic("api_error", "Internal server error"), "unavailable",
        "messages", again_s=USUAL_S),
    Case("Anthropic", 400, _anthropic("invalid_request_error", "Your credit balance is too low to"
        " access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."),
        "unpaid", "messages"),
    Case("Anthropic", 400, _anthropic("invalid_request_error",
        "prompt is too long: 208310 tokens > 200000 maximum"), "overflow", "messages"),
    Case("Anthropic", 413, _anthropic("request_too_large", "Request exceeds the maximum size"),
        "overflow", "messages"),
    Case("Anthropic", 400, _anthropic("invalid_request_error", "Output blocked by content filtering"
        " policy"), "filtered", "messages"),
    Case("Anthropic", 401, _anthropic("authentication_error", "invalid x-api-key"), "key",
        "messages"),
    Case("Anthropic", 403, _anthropic("permission_error", "Your API key does not have permission to"
        " use the specified resource."), "forbidden", "messages"),
    Case("Anthropic", 404, _anthropic("not_found_error", "model: claude-2.1"), "unknown_model",
        "messages"),
    Case("Anthropic", 400, _anthropic("invalid_request_error", "max_tokens: 200000 > 64000, which"
        " is the maximum allowed number of output tokens for m"), "answer_too_long", "messages"),
    Case("Anthropic", 0, _anthropic("overloaded_error", "Overloaded"), "unavailable", "messages",
        again_s=USUAL_S),
    Case("Anthropic", 0, _anthropic("rate_limit_error", "Number of requests has exceeded"),
        "rate_limit", "messages", again_s=USUAL_S),
    Case("Anthropic", 0, _anthropic("invalid_request_error", "prompt is too long"), "overflow",
        "messages"),
    # -- Gemini
    Case("Gemini", 429, _gemini(429, "RESOURCE_EXHAUSTED", _QUOTA + " For more information on this"
        " error, head over to: https://ai.google.dev/gemini-api/docs/rate-limits. * Quota exceeded"
        " for metric: generate_content_free_tier_requests, limit: 10\nPlease retry in"
        " 38.294s.", _QUOTA_FAILURE, _HELP, _retry("38s")), "rate_limit", again_s=38),
    Case("Gemini", 429, _gemini(429, "RESOURCE_EXHAUSTED", _QUOTA, _retry({"seconds": 5})),
        "rate_limit", again_s=5),
    Case("Gemini", 429, _gemini(429, "RESOURCE_EXHAUSTED", _QUOTA, _QUOTA_FAILURE),
        "rate_limit", again_s=USUAL_S),
    Case("Gemini", 429, _error(_QUOTA, code=429, status=None, details=[_retry("7200s")]),
        "rate_limit", left_s=7200),
    Case("Gemini", 503, _gemini(503, "UNAVAILABLE", "The model is overloaded. Please try again"
        " later."), "unavailable", again_s=USUAL_S),
    Case("Gemini", 400, _gemini(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid"
        " API key.", {"@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID"}), "key"),
    Case("Gemini", 404, _gemini(404, "NOT_FOUND", "models/gemini-1.0-pro is not found for API"
        " version v1main, or is not supported for generateContent."), "unknown_model"),
    Case("Gemini", 400, _gemini(400, "INVALID_ARGUMENT", "The input token count (1196265) exceeds"
        " the maximum number of tokens allowed (1048576)."), "overflow"),
    Case("Gemini", 403, _gemini(403, "PERMISSION_DENIED", "Generative Language API has not been"
        " used in project 1 before or it is disabled."), "forbidden"),
    Case("Gemini", 0, _error("The model is overloaded.", code=503, status="UNAVAILABLE"),
        "unavailable", again_s=USUAL_S),
    # -- Groq
    Case("Groq", 400, _error("Failed to call a function. Please adjust your prompt. See"
        " 'failed_generation' for more details.", type="invalid_request_error",
        code="tool_use_failed", failed_generation="<function=clock{\"zone\": }"), "bad_call",
        again_s=USUAL_S),
    Case("Groq", 400, _error("Failed to generate JSON. Please adjust your prompt. See"
        " 'failed_generation' for more details.", code="json_validate_failed"), "bad_call",
        again_s=USUAL_S),
    Case("Groq", 429, _error("Rate limit reached for model `m` in organization `o` on tokens per"
        " day (TPD): Limit 100000, Used 99000, Requested 3000. Please try again in 28m48s.",
        type="tokens", code="rate_limit_exceeded"), "rate_limit", left_s=1728),
    Case("Groq", 413, _error("Request too large for model `m` on tokens per minute (TPM): Limit"
        " 6000, Requested 7000, please reduce your message size and try again.", type="tokens",
        code="rate_limit_exceeded"), "overflow"),
    Case("Groq", 400, _error("The model `llama3-70b-8192` has been decommissioned and is no longer"
        " supported.", code="model_decommissioned"), "unknown_model"),
    # -- OpenRouter
    Case("OpenRouter", 429, _error("Provider returned error", code=429, metadata={"raw":
        "google/gemini-2.0-flash-exp:free is temporarily rate-limited upstream. Please retry"
        " shortly.", "provider_name": "Google"}), "rate_limit", again_s=USUAL_S),
    Case("OpenRouter", 429, _error("Provider returned error", code=429, metadata={"raw": json.dumps(
        _gemini(429, "RESOURCE_EXHAUSTED", _QUOTA, _retry("9s"))[0])}), "rate_limit", again_s=9),
    Case("OpenRouter", 400, _error("Provider returned error", code=400, metadata={"raw":
        '{"error":{"message":"too much","code":"context_length_exceeded"}}'}), "overflow"),
    Case("OpenRouter", 402, _error("This request requires more credits, or fewer max_tokens. You"
        " requested up to 32000 tokens, but can only afford 1234.", code=402), "unpaid"),
    Case("OpenRouter", 403, _error("google/gemini requires moderation on Google. Your input was"
        " flagged for \"harassment\".", code=403, metadata={"reasons": ["harassment"]}),
        "filtered"),
    Case("OpenRouter", 400, _error("gpt-99 is not a valid model ID", code=400), "unknown_model"),
    Case("OpenRouter", 401, _error("No auth credentials found", code=401), "key"),
    Case("OpenRouter", 502, _error("Provider returned error", code=502), "unavailable",
        again_s=USUAL_S),
    Case("OpenRouter", 0, _error("Provider disconnected unexpectedly", code="server_error"),
        "unavailable", again_s=USUAL_S),
    # -- DeepSeek, Mistral, xAI, Moonshot, Zhipu, DashScope, MiniMax, SiliconFlow
    Case("DeepSeek", 402, _error("Insufficient Balance", type="unknown_error",
        code="invalid_request_error"), "unpaid"),
    Case("DeepSeek", 400, _error("Content Exists Risk", code="invalid_request_error"), "filtered"),
    Case("DeepSeek", 400, _error("Model Not Exist", code="invalid_request_error"),
        "unknown_model"),
    Case("Mistral", 429, {"object": "error", "message": "Service tier capacity exceeded for this"
        " model.", "type": "service_tier_capacity_exceeded", "code": "3505"}, "rate_limit",
        again_s=USUAL_S),
    Case("Mistral", 429, {"message": "Requests rate limit exceeded"}, "rate_limit",
        again_s=USUAL_S),
    Case("Mistral", 400, {"object": "error", "message": "Prompt contains 40123 tokens and 0 draft"
        " tokens, too large for model with 32768 maximum context length",
        "type": "invalid_request_prompt", "code": "3051"}, "overflow"),
    Case("Mistral", 401, {"message": "Unauthorized", "request_id": "1"}, "key"),
    Case("Mistral", 400, {"object": "error", "message": "Invalid model: mistral-none",
        "type": "invalid_model", "code": "1500"}, "unknown_model"),
    Case("xAI", 400, {"code": "Client specified an invalid argument", "error": "Incorrect API key"
        " provided: xa***. You can obtain an API key from https://console.x.ai."}, "key"),
    Case("xAI", 403, {"code": "The caller does not have permission", "error": "Your team has either"
        " used all available credits or reached its monthly spending limit."}, "unpaid"),
    Case("Moonshot", 429, _error("Your account org-1 is suspended, please check your plan and"
        " billing details", type="exceeded_current_quota_error"), "unpaid"),
    Case("Moonshot", 429, _error("Your account org-1 request reached max request: 3, please try"
        " again after 1 seconds", type="rate_limit_reached_error"), "rate_limit", again_s=1),
    Case("Moonshot", 400, _error("The request was rejected because it was considered high risk",
        type="content_filter"), "filtered"),
    Case("Zhipu", 429, _error("余额不足或无可用资源包,请充值。", code="1113"), "unpaid"),
    Case("Zhipu", 429, _error("您当前使用该API的并发数过高", code="1302"), "rate_limit",
        again_s=USUAL_S),
    Case("DashScope", 400, _error("Access denied, please make sure your account is in good"
        " standing.", code="Arrearage"), "unpaid"),
    Case("DashScope", 429, _error("Requests rate limit exceeded, please try again later.",
        code="Throttling.RateQuota"), "rate_limit", again_s=USUAL_S),
    Case("MiniMax", 200, {"choices": None, "base_resp": {"status_code": 1008,
        "status_msg": "insufficient balance"}}, "unpaid"),
    Case("SiliconFlow", 403, {"code": 30001, "message": "Sorry, your account balance is"
        " insufficient", "data": None}, "unpaid"),
    # -- Bedrock, Together, Fireworks, Cohere
    Case("Bedrock", 400, {"__type": "com.amazon.coral.service#ThrottlingException", "message":
        "Too many tokens, please wait before trying again."}, "rate_limit", again_s=USUAL_S),
    Case("Bedrock", 400, {"message": "Input is too long for requested model."}, "overflow"),
    Case("Bedrock", 400, {"message": "The provided model identifier is invalid."},
        "unknown_model"),
    Case("Together", 402, _error("Credit limit exceeded", type="credit_limit"), "unpaid"),
    Case("Fireworks", 412, _error("Account me is suspended, possibly due to reaching the monthly"
        " spending limit or failure to pay past invoices."), "unpaid"),
    Case("Cohere", 401, {"message": "invalid api token"}, "key"),
    # -- servers of one's own
    Case("Ollama", 404, _error("model \"qwen3\" not found, try pulling it first",
        type="api_error"), "unknown_model"),
    Case("Ollama", 400, _error("registry.ollama.ai/library/gemma:2b does not support tools"),
        "rejected"),
    Case("Ollama", 500, _error("model requires more system memory (5.5 GiB) than is available"
        " (3.1 GiB)", type="api_error"), "unavailable", again_s=USUAL_S),
    Case("vLLM", 404, {"object": "error", "message": "The model `m` does not exist.",
        "type": "NotFoundError", "code": 404}, "unknown_model"),
    Case("vLLM", 400, {"object": "error", "message": "This model's maximum context length is 8192"
        " tokens. However, you requested 9216 tokens.", "type": "BadRequestError", "code": 400},
        "overflow"),
    Case("llama.cpp", 400, _error("the request exceeds the available context size, try increasing"
        " it", code=400, type="exceed_context_size_error", n_prompt_tokens=9001, n_ctx=8192),
        "overflow"),
    Case("llama.cpp", 503, _error("Loading model", code=503, type="unavailable_error"),
        "unavailable", again_s=USUAL_S),
    Case("llama.cpp", 500, _error("Context size has been exceeded.", code=500,
        type="server_error"), "overflow"),
    Case("LM Studio", 400, {"error": "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"},
        "overflow"),
    Case("LM Studio", 400, _error("No models loaded. Please load a model in the developer page."),
        "unknown_model"),
    # -- gateways
    Case("LiteLLM", 429, _error("litellm.RateLimitError: Rate limit exceeded. Try again in 30"
        " seconds.", type="throttling_error", code="429"), "rate_limit", again_s=30),
    Case("LiteLLM", 400, _error("litellm.ContextWindowExceededError: the prompt has 9001 tokens",
        code="400"), "overflow"),
    Case("LiteLLM", 400, _error("litellm.ContextWindowExceededError: litellm.BadRequestError:"
        " OpenAIException - Invalid 'messages[3].tool_calls[0].id': string too long. Expected a"
        " string with maximum length 40, but got a string with length 42 instead."), "rejected"),
    Case("nginx", 504, "<html><h1>504 Gateway Time-out</h1></html>", "unavailable",
        again_s=USUAL_S),
    Case("nginx", 413, "<html><h1>413 Request Entity Too Large</h1></html>", "overflow"),
    Case("OpenAI", 429, _error(
        "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000,"
        " Requested 40000. The input or output tokens must be reduced in order to run"
        " successfully. Visit https://platform.openai.com/account/rate-limits to learn more.",
        type="tokens", param=None, code="rate_limit_exceeded"), "overflow"),
    Case("Anthropic", 400, _anthropic("invalid_request_error", "You have reached your specified"
        " API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."), "unpaid",
        api="messages"),
    Case("Gemini", 400, _error("User location is not supported for the API use.", code=400,
        status="FAILED_PRECONDITION"), "forbidden"),
    Case("xAI", 403, {"code": "The caller does not have permission to execute the specified"
        " operation", "error": "Your newly created team doesn't have any credits or licenses yet."},
        "unpaid"),
    Case("Groq", 498, _error("Flex tier capacity exceeded", code="capacity_exceeded"),
        "rate_limit", again_s=USUAL_S),
    Case("Bedrock", 424, {"message": "The model has had an error."}, "unavailable",
        again_s=USUAL_S),
    Case("Gemini", 429, _error("Your quota will reset after 5h12m3s.", code=429), "rate_limit",
        left_s=18_723),
    # -- words that happen to be there
    Case("a tool", 400, _error("Invalid schema for function 'rate_limit_info': In context=(),"
        " array schema missing items", param="tools[0].function.parameters",
        code="invalid_function_parameters"), "rejected"),
    Case("a tool", 400, _error("Invalid 'tools[3].function.name': 'insufficient_quota"
        " content_filter is too long' does not match. The prompt is too long.",
        code="invalid_value"), "rejected"),
    Case("a parameter", 400, _error("Unsupported parameter: 'content_filter' is not supported with"
        " this model.", code="unsupported_parameter"), "rejected"),
    Case("a parameter", 400, _error("Unrecognized request argument supplied: context_length_rule"),
        "rejected"),
    Case("a path", 404, _error("The context window tool was not found"), "unknown_model"),
    Case("a teapot", 418, _error("The rate of tea is low"), "refused"),
]  # fmt: skip
