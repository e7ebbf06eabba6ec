//! Reads a table of types.
//!
//! ```text
//! # a comment
//! kind apps/v1 Deployment apps.v1.Deployment
//! type core.v1.ContainerPort containerPort:i32 hostIP?:str protocol?:str
//! type meta.v1.LabelSelector ! matchLabels?:{str}         an atomic struct
//! ```
//!
//! | written | is |
//! |---|---|
//! | `str` `bytes` `time` `microtime` `quantity` `intstr` `i32` `i64` `f64` `bool` `scalar` | a scalar of that Go type, or any |
//! | `[T]` `set[T]` `map(k,l="TCP")[T]` | a list: atomic, a set, a map by keys with their defaults |
//! | `{T}` `!{T}` | a map of any keys; an atomic one |
//! | `NAME` `!NAME` `~NAME` | a struct; made atomic here; made granular here |
//! | `any` `!any` | anything, deduced from the value; as a whole |
//! | `FIELD?:T` `FIELD:*T` | a field that is not written while it is empty; a pointer |

use std::collections::HashMap;

use super::{Field, ListKey, Lists, Scalar, SchemaType, Schemas, Struct};

/// Why a table is not read: the line, from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(usize);

type Places<'s> = HashMap<&'s str, usize>;

impl<'s> Schemas<'s> {
    /// Reads a table.
    pub(crate) fn read(text: &'s str) -> Result<Self, Malformed> {
        let lines = || text.lines().enumerate().map(|(line, text)| (line + 1, text));
        let named = lines().filter_map(|(_, line)| line.strip_prefix("type ")?.split(' ').next());
        let places: Places<'s> = named.enumerate().map(|(place, name)| (name, place)).collect();
        let mut schemas = Self::default();
        for (number, line) in lines() {
            schemas.line(line, &places).ok_or(Malformed(number))?;
        }
        Ok(schemas)
    }

    fn line(&mut self, line: &'s str, places: &Places<'s>) -> Option<()> {
        if line.is_empty() || line.starts_with('#') {
            return Some(());
        }
        let mut words = line.split(' ');
        match words.next()? {
            "type" => {
                let name = words.next()?;
                self.structs.push(Struct::read(name, words, places)?);
            }
            "kind" => {
                let (version, kind) = (words.next()?, words.next()?);
                let of = read(words.next()?, places)?;
                self.kinds.entry(version).or_default().insert(kind, of);
            }
            _ => return None,
        }
        Some(())
    }
}

impl<'s> Struct<'s> {
    fn read(name: &'s str, words: impl Iterator<Item = &'s str>, places: &Places<'s>) -> Option<Self> {
        let mut own = Self {
            name,
            ..Self::default()
        };
        for word in words {
            if word == "!" {
                own.atomic = true;
            } else {
                own.fields.push(Field::read(word, places)?);
            }
        }
        own.fields.sort_unstable_by_key(|field| field.name);
        Some(own)
    }
}

impl<'s> Field<'s> {
    fn read(word: &'s str, places: &Places<'s>) -> Option<Self> {
        let (name, of) = word.split_once(':')?;
        let target = of.strip_prefix('*');
        let optional = name.strip_suffix('?');
        Some(Self {
            name: optional.unwrap_or(name),
            of: read(target.unwrap_or(of), places)?,
            omits_empty: optional.is_some(),
            is_pointer: target.is_some(),
        })
    }
}

/// Reads a type.
fn read<'s>(text: &'s str, places: &Places<'s>) -> Option<SchemaType<'s>> {
    if let Some(of) = word(text) {
        return Some(of);
    }
    if let Some(rest) = text.strip_suffix(']') {
        let (lists, item) = list(rest)?;
        return Some(SchemaType::List(Box::new(read(item, places)?), lists));
    }
    let (atomic, rest) = match text.strip_prefix('!') {
        Some(rest) => (Some(true), rest),
        None => match text.strip_prefix('~') {
            Some(rest) => (Some(false), rest),
            None => (None, text),
        },
    };
    if let Some(value) = rest.strip_prefix('{') {
        let value = read(value.strip_suffix('}')?, places)?;
        return Some(SchemaType::Map(Box::new(value), atomic.unwrap_or(false)));
    }
    places.get(rest).map(|place| SchemaType::Struct(*place, atomic))
}

fn word(text: &str) -> Option<SchemaType<'static>> {
    Some(match text {
        "str" => SchemaType::Scalar(Scalar::String),
        "bytes" => SchemaType::Scalar(Scalar::Bytes),
        "time" => SchemaType::Scalar(Scalar::Time),
        "microtime" => SchemaType::Scalar(Scalar::MicroTime),
        "quantity" => SchemaType::Scalar(Scalar::Quantity),
        "intstr" => SchemaType::Scalar(Scalar::IntOrString),
        "i32" => SchemaType::Scalar(Scalar::Int32),
        "i64" => SchemaType::Scalar(Scalar::Int64),
        "f64" => SchemaType::Scalar(Scalar::Double),
        "bool" => SchemaType::Scalar(Scalar::Boolean),
        "scalar" => SchemaType::Scalar(Scalar::Any),
        "any" => SchemaType::Deduced,
        "!any" => SchemaType::Untyped,
        _ => return None,
    })
}

/// How a list merges, and the type of its items.
fn list(text: &str) -> Option<(Lists<'_>, &str)> {
    if let Some(item) = text.strip_prefix('[') {
        return Some((Lists::Atomic, item));
    }
    if let Some(item) = text.strip_prefix("set[") {
        return Some((Lists::Set, item));
    }
    let (keys, item) = text.strip_prefix("map(")?.split_once(")[")?;
    let key = |text| match str::split_once(text, '=') {
        Some((name, default)) => ListKey {
            name,
            default: Some(default),
        },
        None => ListKey {
            name: text,
            default: None,
        },
    };
    let mut keys: Vec<ListKey<'_>> = keys.split(',').map(key).collect();
    keys.sort_unstable_by_key(|key| key.name);
    Some((Lists::Map(keys), item))
}
