"""The errors of servers for questions and answers that are too long: name, status and body."""

from typing import Any, Final


def _error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message} | more}


OVERFLOWS: Final[list[tuple[str, int, Any]]] = [
    ("OpenAI", 400, _error(
        "This model's maximum context length is 8192 tokens. However, your messages resulted in"
        " 9001 tokens. Please reduce the length of the messages.",
        code="context_length_exceeded")),
    ("OpenAI, Responses", 400, _error(
        "Your input exceeds the context window of this model. Please adjust your input and try"
        " again.", code="context_length_exceeded")),
    ("Azure", 400, _error(
        "This model's maximum context length is 4097 tokens, however you requested 4569 tokens"
        " (3545 in your prompt; 1024 for the completion).", code=None)),
    ("Anthropic", 400, _error("prompt is too long: 208310 tokens > 200000 maximum")),
    ("Anthropic, with the answer", 400, _error(
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease"
        " input length or `max_tokens` and try again")),
    ("Anthropic, bytes", 413, _error(
        "Request exceeds the maximum size", type="request_too_large")),
    ("Bedrock", 400, {"message": "Input is too long for requested model."}),
    ("Bedrock, compatible", 400, _error("The model returned the following errors: Input length of"
        " 300000 tokens exceeds the maximum context length")),
    ("Gemini", 400, [_error(
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).",
        code=400, status="INVALID_ARGUMENT")]),
    ("xAI", 400, {"code": "Client specified an invalid argument", "error":
        "This model's maximum prompt length is 131072 but the request contains 136973 tokens."}),
    ("Groq", 400, _error(
        "Please reduce the length of the messages or completion.",
        code="context_length_exceeded")),
    ("Groq, per minute", 413, _error(
        "Request too large for model `m` on tokens per minute (TPM): Limit 10000, Requested 21247,"
        " please reduce your message size and try again.", code="rate_limit_exceeded")),
    ("OpenRouter", 400, _error(
        "This endpoint's maximum context length is 202752 tokens. However, you requested about"
        " 203889 tokens (183648 of text input, 4241 of tool input, 16000 in the output). Please"
        " reduce the length of either one.", code=400)),
    ("OpenRouter, raw", 400, _error("Provider returned error", code=400, metadata={
        "raw": '{"error":{"code":"context_length_exceeded"}}'})),
    ("DeepSeek", 400, _error(
        "This model's maximum context length is 65536 tokens. However, you requested 65540 tokens"
        " (57348 in the messages, 8192 in the completion).", code="invalid_request_error")),
    ("Moonshot", 400, _error(
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
        type="invalid_request_error")),
    ("Moonshot, older", 400, _error("model max length exceeded, max length:8192")),
    ("DashScope", 400, _error(
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]",
        code="invalid_parameter_error")),
    ("DashScope, native", 400, {
        "code": "InvalidParameter", "message": "Range of input length should be [1, 6000]",
        "request_id": "x"}),
    ("Zhipu", 400, _error("Prompt exceeds max length", code="1261")),
    ("Zhipu, Chinese", 400, _error("Prompt 超长", code="1261")),
    ("Z.ai", 400, _error("tokens in request more than max tokens allowed", code="1210")),
    ("MiniMax", 400, _error("invalid params, context window exceeds limit (2013)")),
    ("Mistral", 400, {"object": "error", "message":
        "Prompt contains 40123 tokens and 0 draft tokens, too large for model with 32768 maximum"
        " context length", "type": "invalid_request_prompt", "code": "3051"}),
    ("Cohere", 400, {"message":
        "too many tokens: total number of tokens in the prompt cannot exceed 4081, but there are"
        " 4292."}),
    ("Fireworks", 400, _error("The prompt is too long: 11456, model maximum context length: 8192")),
    ("Together", 422, _error(
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000"
        " `inputs` tokens and 1024 `max_new_tokens`")),
    ("Text Generation Inference", 422, {"error":
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 2059",
        "error_type": "validation"}),
    ("SambaNova", 400, _error(
        "The maximum context length of m is 4096. However, answering your request will take 5000"
        " tokens.")),
    ("watsonx", 400, {"errors": [{"code": "invalid_input_argument"}], "message":
        "the number of input tokens 5000 cannot exceed the total tokens limit 4096"}),
    ("GitHub Copilot", 400, _error(
        "prompt token count of 132000 exceeds the limit of 128000",
        code="model_max_prompt_tokens_exceeded")),
    ("Cloudflare", 413, {"errors": [{"message":
        "The estimated number of input and maximum output tokens (4164) exceeded this model context"
        " window limit (4096)."}]}),
    ("NVIDIA", 400, {"object": "error", "message":
        "This model's maximum context length is 16384 tokens. However, you requested 19591 tokens"
        " (9591 in the messages, 10000 in the completion).", "type": "BadRequestError"}),
    ("vLLM", 400, _error(
        "'max_tokens' or 'max_completion_tokens' is too large: 1024. This model's maximum context"
        " length is 8192 tokens and your request has 8000 input tokens (1024 > 8192 - 8000).",
        type="BadRequestError", code=400)),
    ("vLLM, prompt", 400, {"object": "error", "message":
        "The decoder prompt (length 9001) is longer than the maximum model length of 8192.",
        "type": "BadRequestError", "code": 400}),
    ("SGLang", 400, {"object": "error", "message":
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        "type": "BadRequestError", "code": 400}),
    ("SGLang, with the answer", 400, {"object": "error", "message":
        "Requested token count exceeds the model's maximum context length of 202752 tokens. You"
        " requested a total of 202941 tokens: 170941 tokens from the input messages and 32000"
        " tokens for the completion.", "type": "BadRequestError", "code": 400}),
    ("SGLang, memory", 400, {"object": "error", "message":
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
        "type": "BadRequestError", "code": 400}),
    ("LM Studio", 400, {"error":
        "The number of tokens to keep from the initial prompt is greater than the context length"
        " (n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length, or"
        " provide a shorter input."}),
    ("LM Studio, older", 400, {"error":
        "Trying to keep the first 15857 tokens when context the overflows. However, the model is"
        " loaded with context length of only 4096 tokens, which is not enough."}),
    ("LM Studio, newer", 400, {"error":
        "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"}),
    ("llama.cpp", 400, _error(
        "the request exceeds the available context size, try increasing it", code=400,
        type="exceed_context_size_error", n_prompt_tokens=9001, n_ctx=8192)),
    ("llama.cpp, while answering", 500, _error("Context size has been exceeded.", code=500)),
    ("llama-cpp-python", 400, _error(
        "This model's maximum context length is 2048 tokens, however you requested 3000 tokens"
        " (2900 in your prompt; 100 for the completion).", code="context_length_exceeded")),
    ("Ollama", 400, _error("input length exceeds the context length")),
    ("OpenAI, more than in a minute", 429, _error(
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000. The"
        " input or output tokens must be reduced in order to run successfully.")),
    ("Ollama, cloud", 400, _error("prompt too long; exceeded max context length by 4 tokens")),
    ("KoboldCpp", 400, _error("Prompt has 9000 tokens, but the configured context size is 8192"
        " tokens")),
]  # fmt: skip

NO_OVERFLOWS: Final[list[tuple[str, int, Any]]] = [
    ("OpenAI, long answer", 400, _error(
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens,"
        " whereas you provided 100000.", param="max_tokens")),
    ("Groq, long answer", 400, _error(
        "`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens` is"
        " less than the `context_window` for this model")),
    ("DeepSeek, long answer", 400, _error(
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]")),
    ("DashScope, long answer", 400, _error("Range of max_tokens should be [1, 8192]")),
    ("Anthropic, long answer", 400, _error(
        "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for m")),
    ("OpenAI, rate", 429, _error(
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 20000.")),
    ("Bedrock, rate", 400, {"message":
        "Throttling error: Too many tokens, please wait before trying again."}),
    ("a rate in a stream", 0, _error("Rate limit reached: too many tokens, retry later")),
    ("a tool", 400, _error("Invalid schema for function 'a': string exceeds 64 characters")),
]  # fmt: skip
