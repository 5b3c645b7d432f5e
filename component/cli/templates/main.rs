// A command of WASI preview 1: it reads the parameters as JSON from standard input, and
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
