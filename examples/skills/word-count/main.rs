//! A skill in Rust, as a command of WASI preview 1: JSON on standard input, JSON on standard output.
//! It counts the words, lines and characters of a text. It needs no crates, so rustc alone builds it.

use std::io::Read;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut input = String::new();
    if std::io::stdin().read_to_string(&mut input).is_err() {
        print!("{{\"error\": \"The input is not UTF-8.\"}}");
        return ExitCode::from(1);
    }
    match text_of(&input) {
        Some(text) => {
            print!(
                "{{\"words\":{},\"lines\":{},\"characters\":{}}}",
                text.split_whitespace().count(),
                text.lines().count(),
                text.chars().count()
            );
            ExitCode::SUCCESS
        }
        None => {
            // An error for the caller: exit code 1, and the parameter that is wrong.
            print!("{{\"error\": \"it is not a text\", \"parameter\": \"text\"}}");
            ExitCode::from(1)
        }
    }
}

/// Returns the string of the member `text` of a JSON object that has no other members.
fn text_of(json: &str) -> Option<String> {
    let rest = json.trim().strip_prefix('{')?.trim_start();
    let rest = rest.strip_prefix("\"text\"")?.trim_start();
    let mut chars = rest.strip_prefix(':')?.trim_start().strip_prefix('"')?.chars();
    let mut text = String::new();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => text.push(match chars.next()? {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let high = hex(&mut chars)?;
                    if (0xd800..0xdc00).contains(&high) {
                        if chars.next()? != '\\' || chars.next()? != 'u' {
                            return None;
                        }
                        let low = hex(&mut chars)?;
                        char::from_u32(0x10000 + ((high - 0xd800) << 10) + low.checked_sub(0xdc00)?)?
                    } else {
                        char::from_u32(high)?
                    }
                }
                other => other,
            }),
            other => text.push(other),
        }
    }
    Some(text)
}

fn hex(chars: &mut std::str::Chars) -> Option<u32> {
    (0..4).try_fold(0, |number, _| Some(number * 16 + chars.next()?.to_digit(16)?))
}
