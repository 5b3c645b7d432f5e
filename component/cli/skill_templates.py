"""What `xmpp-agent skills new` writes, for each kind of skill."""

from collections.abc import Mapping
from typing import Final

_MANIFEST = """\
# docs/skills.md describes all keys.
[skill]
name = "@NAME@"
version = "0.1.0"
description = "Greets somebody."
tags = ["example"]
@SCHEMA@
[skill.annotations]
read_only = true
open_world = false

# Nothing is allowed unless it is declared here and an admin approves it.
[skill.capabilities]
# network = ["https://api.example.com"]
# filesystem_read = ["/srv/menus"]

[skill.execution]
kind = "@KIND@"
entry = "@ENTRY@"
timeout_s = 10
"""
_SCHEMA = """
[skill.input_schema]
type = "object"
required = ["who"]
additionalProperties = false

[skill.input_schema.properties.who]
type = "string"
description = "who is greeted"
minLength = 1
maxLength = 100
"""
_PYTHON = '''\
"""Greets somebody."""

from typing import Annotated

import msgspec

from xmpp_agent import SkillError, skill


@skill(name="@NAME@", read_only=True, open_world=False)
def greet(
    who: Annotated[str, msgspec.Meta(description="who is greeted", min_length=1, max_length=100)],
    times: Annotated[int, msgspec.Meta(description="how often", ge=1, le=10)] = 1,
) -> str:
    """Greet somebody."""
    if who == "unknown":
        raise SkillError("The name is unknown.")
    return ", ".join(["Hello"] * times) + f", {who}!"
'''
_CASES = """\
# `xmpp-agent skills test` calls the skill with these parameters and compares its results.
[[case]]
name = "greets by name"
params = { who = "Romeo" }
text = "Hello, Romeo!"

[[case]]
name = "refuses an unknown name"
params = { who = "unknown" }
error = "name is unknown"
"""
_RUST = r"""// A command of WASI preview 1: it reads the parameters as JSON from standard input, and
// writes its result as JSON to standard output. Build it:
//     rustc --edition 2021 --target wasm32-wasip1 -O main.rs -o skill.wasm
use std::io::{read_to_string, stdin};
use std::process::exit;

/// Return the value of a text parameter. A crate such as serde_json does this for any JSON.
fn text(json: &str, key: &str) -> Option<String> {
    let rest = json.split_once(&format!("\"{key}\":"))?.1.trim_start().strip_prefix('"')?;
    let mut end = 0;
    let mut escaped = false;
    for (at, character) in rest.char_indices() {
        end = at;
        if character == '"' && !escaped {
            break;
        }
        escaped = character == '\\' && !escaped;
    }
    Some(rest[..end].to_string())
}

fn main() {
    let json = read_to_string(stdin()).expect("the parameters are UTF-8");
    match text(&json, "who") {
        Some(who) if who != "unknown" => println!("\"Hello, {who}!\""),
        _ => {
            println!(r#"{{"error": "The name is unknown."}}"#);
            exit(1);
        }
    }
}
"""
_C = r"""/* A command of WASI preview 1: it reads the parameters as JSON from standard input, and
   writes its result as JSON to standard output. Build it:
       clang --target=wasm32-wasi -O2 main.c -o skill.wasm */
#include <stdio.h>
#include <string.h>

int main(void) {
    static char json[65536];
    size_t size = fread(json, 1, sizeof json - 1, stdin);
    json[size] = 0;
    char *who = strstr(json, "\"who\":");
    who = who ? strchr(who + 6, '"') : 0;
    /* A JSON string, with its quotes and escapes. A library reads any JSON. */
    char *end = who ? who + 1 : 0;
    while (end && *end && *end != '"') end += *end == '\\' && end[1] ? 2 : 1;
    if (!end || !*end || strncmp(who, "\"unknown\"", 9) == 0) {
        puts("{\"error\": \"The name is unknown.\"}");
        return 1;
    }
    printf("\"Hello, %.*s!\"\n", (int)(end - who - 1), who + 1);
    return 0;
}
"""
_REST = """\
# docs/skills.md describes all keys, docs/rest.md those of the request.
[skill]
name = "@NAME@"
version = "0.1.0"
description = "Greets somebody, with the words of an API."
tags = ["example"]
@SCHEMA@
# Without annotations GET only reads, and a person is asked before other methods.
[skill.request]
url = "https://api.example.com/greetings/{who}"
query = { language = "{language}" }
# credential = "example-key"

[skill.response]
select = "greeting"
output = "{text}, {name}!"

# Nothing is allowed unless it is declared here and an admin approves it.
[skill.capabilities]
network = ["https://api.example.com"]
# credential = ["example-key"]

[skill.execution]
kind = "rest"
timeout_s = 10
"""
_REST_CASES = """\
# `xmpp-agent skills test` answers the requests with `http`, in order, and sends none of them.
[[case]]
name = "greets by name"
params = { who = "Romeo" }
contains = "Hello, Romeo!"

[[case.http]]
url = "https://api.example.com/greetings/Romeo?language=en"
json = { greeting = { text = "Hello", name = "Romeo" } }

[[case]]
name = "says what the API says"
params = { who = "unknown" }
error = "name is unknown"
http = [{ status = 404, text = "The name is unknown." }]
"""
_LANGUAGE = """
[skill.input_schema.properties.language]
enum = ["de", "en", "fr"]
default = "en"
"""


def _manifest(kind: str, entry: str, schema: str = "") -> str:
    return _MANIFEST.replace("@KIND@", kind).replace("@ENTRY@", entry).replace("@SCHEMA@", schema)


_TEST = {"tests/cases.toml": _CASES}

TEMPLATES: Final[Mapping[str, Mapping[str, str]]] = {
    "python": {"skill.toml": _manifest("python", "main.py"), "main.py": _PYTHON, **_TEST},
    "wasm-rust": {
        "skill.toml": _manifest("wasm", "skill.wasm", _SCHEMA),
        "main.rs": _RUST,
        **_TEST,
    },
    "wasm-c": {"skill.toml": _manifest("wasm", "skill.wasm", _SCHEMA), "main.c": _C, **_TEST},
    "rest": {
        "skill.toml": _REST.replace("@SCHEMA@", _SCHEMA + _LANGUAGE),
        "tests/cases.toml": _REST_CASES,
    },
}
"""The files of each kind. `@NAME@` stands for the name of the skill."""

BUILDS: Final[Mapping[str, str]] = {
    "wasm-rust": "rustc --edition 2021 --target wasm32-wasip1 -O main.rs -o skill.wasm",
    "wasm-c": "clang --target=wasm32-wasi -O2 main.c -o skill.wasm",
}
"""The command that builds each kind that has to be built."""
