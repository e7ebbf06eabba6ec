//! Functions of strings (cel-go `ext/strings.go`, versions 0 to 2). Positions count characters.

use super::TextWriter;
use super::standard::{Computed, no_such_overload};
use crate::environment::Version;
use crate::evaluate::Evaluation;
use crate::function::{Cost, Overload};
use crate::program::Call;
use crate::types::Type::{self, Int, String as Str};
use crate::value::{Text, Value};
use crate::{EvalError, cost};

pub(crate) fn functions() -> Vec<Overload> {
    let traversed = Cost::OfFunction(|arguments, _| first_size(arguments, cost::traverse));
    let rewritten = Cost::OfFunction(|arguments, _| first_size(arguments, cost::rewrite));
    let joined = Cost::OfFunction(|_, result| cost::rewrite(cost::plain_size(result)));
    let searched = Cost::Traversal;
    let quoted = Cost::OfOverload(|arguments, _| first_size(arguments, cost::traverse));
    let texts = || Type::list(Str);
    vec![
        Overload::member("string_char_at_int", "charAt", [Str, Int], Str, char_at),
        Overload::member("string_index_of_string", "indexOf", [Str, Str], Int, index_of).cost(searched),
        Overload::member(
            "string_index_of_string_int",
            "indexOf",
            [Str, Str, Int],
            Int,
            index_of,
        )
        .cost(searched),
        Overload::member(
            "string_last_index_of_string",
            "lastIndexOf",
            [Str, Str],
            Int,
            last_index_of,
        )
        .cost(searched),
        Overload::member(
            "string_last_index_of_string_int",
            "lastIndexOf",
            [Str, Str, Int],
            Int,
            last_index_of,
        )
        .cost(searched),
        Overload::member("string_lower_ascii", "lowerAscii", [Str], Str, lower).cost(traversed),
        Overload::member("string_upper_ascii", "upperAscii", [Str], Str, upper).cost(traversed),
        Overload::member(
            "string_replace_string_string",
            "replace",
            [Str, Str, Str],
            Str,
            replace,
        )
        .cost(rewritten),
        Overload::member(
            "string_replace_string_string_int",
            "replace",
            [Str, Str, Str, Int],
            Str,
            replace,
        )
        .cost(rewritten),
        Overload::member("string_split_string", "split", [Str, Str], texts(), split).cost(rewritten),
        Overload::member(
            "string_split_string_int",
            "split",
            [Str, Str, Int],
            texts(),
            split,
        )
        .cost(rewritten),
        Overload::member("string_substring_int", "substring", [Str, Int], Str, substring).cost(traversed),
        Overload::member(
            "string_substring_int_int",
            "substring",
            [Str, Int, Int],
            Str,
            substring,
        )
        .cost(traversed),
        Overload::member("string_trim", "trim", [Str], Str, trim).cost(traversed),
        Overload::member("list_join", "join", [texts()], Str, join).cost(joined),
        Overload::member("list_join_string", "join", [texts(), Str], Str, join).cost(joined),
        Overload::global("strings_quote", "strings.quote", [Str], Str, quote).cost(quoted),
        Overload::member(
            "string_format",
            "format",
            [Str, Type::list(Type::Dyn)],
            Str,
            super::format::format,
        )
        .cost(quoted),
    ]
}

pub(crate) fn first_size(arguments: &[Value<'_>], cost: impl FnOnce(u64) -> u64) -> u64 {
    cost(arguments.first().map_or(1, cost::plain_size))
}

fn out_of_range<'a>(index: i64) -> Computed<'a> {
    Err(EvalError::failed(format_args!("index out of range: {index}")))
}

/// The byte offset of the character `index`, or of the end.
fn byte_of(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    let ends = std::iter::once(text.len());
    text.char_indices().map(|(byte, _)| byte).chain(ends).nth(index)
}

fn length(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

fn char_at<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text), Value::Int(index)] = arguments else {
        return no_such_overload();
    };
    own.work(text.len())?;
    let Some(byte) = byte_of(text, *index) else {
        return out_of_range(*index);
    };
    own.part(text, |text| {
        let rest = text.get(byte..).unwrap_or_default();
        let width = rest.chars().next().map_or(0, char::len_utf8);
        rest.get(..width).unwrap_or_default()
    })
}

fn index_of<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (text, part, from) = match arguments {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return no_such_overload(),
    };
    if part.is_empty() {
        return empty_from(own, text, from);
    }
    if from < 0 {
        return out_of_range(from);
    }
    own.work(text.len())?;
    let Some(start) = byte_of(text, from) else {
        return Ok(Value::Int(-1));
    };
    let rest = text.get(start..).unwrap_or_default();
    let found = rest.find(&**part).and_then(|byte| rest.get(..byte));
    Ok(Value::Int(found.map_or(-1, |before| from + length(before))))
}

/// The position at which the empty string is found: where the search begins, but since cel-go 0.29
/// at most at the end of the string.
fn empty_from<'a>(own: &mut Evaluation<'_, 'a>, text: &str, from: i64) -> Computed<'a> {
    if own.version() < Version::CEL_GO_0_29 {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return out_of_range(from);
    }
    own.work(text.len())?;
    Ok(Value::Int(from.min(length(text))))
}

fn last_index_of<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (text, part, from) = match arguments {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, Some(*from)),
        _ => return no_such_overload(),
    };
    own.work(text.len())?;
    let characters = length(text);
    if part.is_empty() {
        return from.map_or(Ok(Value::Int(characters)), |from| empty_from(own, text, from));
    }
    let from = match from {
        Some(from) if from < 0 => return out_of_range(from),
        Some(from) if from >= characters => return Ok(Value::Int(-1)),
        Some(from) => from,
        None if text.len() < part.len() => return Ok(Value::Int(-1)),
        None if text.is_empty() => return out_of_range(-1),
        None => characters,
    };
    // A match may begin at `from`, so the end of the search is the length of `part` later.
    let end = byte_of(text, from.saturating_add(length(part))).unwrap_or(text.len());
    let before = text.get(..end).unwrap_or_default();
    let found = before.rfind(&**part).and_then(|byte| before.get(..byte));
    Ok(Value::Int(found.map_or(-1, length)))
}

fn lower<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return no_such_overload();
    };
    own.make_text(text.len(), || text.to_ascii_lowercase())
}

fn upper<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return no_such_overload();
    };
    own.make_text(text.len(), || text.to_ascii_uppercase())
}

fn replace<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (text, from, to, limit) = match arguments {
        [Value::String(text), Value::String(from), Value::String(to)] => (text, from, to, -1),
        [
            Value::String(text),
            Value::String(from),
            Value::String(to),
            Value::Int(limit),
        ] => (text, from, to, *limit),
        _ => return no_such_overload(),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let places = || text.match_indices(&**from).take(limit);
    // The result may be far larger than its cost suggests, so its size is determined first.
    own.work(text.len())?;
    let count = places().count();
    let kept = text.len() - count * from.len();
    let mut replaced = TextWriter::new(own);
    replaced.reserve(count.saturating_mul(to.len()).saturating_add(kept))?;
    let mut rest = 0;
    for (place, found) in places() {
        replaced.push(text.get(rest..place).unwrap_or_default())?;
        replaced.push(to)?;
        rest = place + found.len();
    }
    replaced.push(text.get(rest..).unwrap_or_default())?;
    replaced.finish()
}

fn split<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (text, by, limit) = match arguments {
        [Value::String(text), Value::String(by)] => (text, by, -1),
        [Value::String(text), Value::String(by), Value::Int(limit)] => (text, by, *limit),
        _ => return no_such_overload(),
    };
    own.work(text.len().saturating_mul(8))?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = count_parts(text, by, limit);
    own.allocate_items(count)?;
    if matches!(text, Text::Shared(_)) {
        own.allocate(text.len() + count * Text::BYTES)?;
    }
    let parts: Vec<Value<'a>> = match text {
        Text::Borrowed(text) => parts(text, by, limit).into_iter().map(Value::str).collect(),
        Text::Shared(text) => parts(text, by, limit).into_iter().map(Value::string).collect(),
    };
    Ok(Value::list(parts))
}

/// An upper bound of the number of parts.
fn count_parts(text: &str, by: &str, limit: usize) -> usize {
    let parts = match by {
        "" => text.len(),
        by => text.matches(by).count() + 1,
    };
    parts.min(limit)
}

/// At most `limit` parts, of which the last is the rest. An empty separator splits between all
/// characters.
fn parts<'t>(text: &'t str, by: &str, limit: usize) -> Vec<&'t str> {
    if limit == 0 {
        return Vec::new();
    }
    if !by.is_empty() {
        return text.splitn(limit, by).collect();
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest);
            break;
        }
        let (part, after) = rest.split_at(first.len_utf8());
        parts.push(part);
        rest = after;
    }
    parts
}

fn substring<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (text, from, to) = match arguments {
        [Value::String(text), Value::Int(from)] => (text, *from, None),
        [Value::String(text), Value::Int(from), Value::Int(to)] => (text, *from, Some(*to)),
        _ => return no_such_overload(),
    };
    own.work(text.len())?;
    if let Some(to) = to
        && from > to
    {
        return Err(EvalError::failed(format_args!(
            "invalid substring range. start: {from}, end: {to}"
        )));
    }
    let Some(start) = byte_of(text, from) else {
        return out_of_range(from);
    };
    let end = match to {
        Some(to) => match byte_of(text, to) {
            Some(end) => end,
            None => return out_of_range(to),
        },
        None => text.len(),
    };
    own.part(text, |text| text.get(start..end).unwrap_or_default())
}

fn trim<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return no_such_overload();
    };
    own.work(text.len())?;
    own.part(text, str::trim)
}

fn join<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let (list, separator) = match arguments {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return no_such_overload(),
    };
    let mut joined = TextWriter::new(own);
    for (position, item) in list.items().enumerate() {
        let Value::String(text) = item else {
            return Err(EvalError::failed(format_args!(
                "join: invalid input: {}",
                item.printed()
            )));
        };
        joined.evaluation.work(1)?;
        joined.push(if position > 0 { separator } else { "" })?;
        joined.push(&text)?;
    }
    joined.finish()
}

fn quote<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return no_such_overload();
    };
    let mut quoted = TextWriter::new(own);
    quoted.push("\"")?;
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push("\\a"),
            '\u{8}' => quoted.push("\\b"),
            '\u{c}' => quoted.push("\\f"),
            '\n' => quoted.push("\\n"),
            '\r' => quoted.push("\\r"),
            '\t' => quoted.push("\\t"),
            '\u{b}' => quoted.push("\\v"),
            '\\' => quoted.push("\\\\"),
            '"' => quoted.push("\\\""),
            other => quoted.push(other.encode_utf8(&mut [0; 4])),
        }?;
    }
    quoted.push("\"")?;
    quoted.finish()
}
