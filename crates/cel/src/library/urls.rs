//! Functions of URLs (apiserver `pkg/cel/library/urls.go`).

use std::sync::Arc;

use super::standard::{Computed, no_such_overload};
use super::strings::first_size;
use crate::evaluate::Evaluation;
use crate::function::{Apply, Cost, Overload};
use crate::program::Call;
use crate::types::Type::{self, Bool, String as Str};
use crate::value::{Entries, Key, Opaque, Text, UrlValue, Value};
use crate::{EvalError, cost};

/// The type of a URL.
pub(crate) const URL: Type = Type::Opaque("kubernetes.URL");

pub(crate) fn functions() -> Vec<Overload> {
    let read = Cost::OfFunction(|arguments, _| first_size(arguments, cost::traverse));
    let nominal = Cost::OfFunction(|_, _| 1);
    let part = |id, name, apply: Apply| Overload::member(id, name, [URL], Str, apply).cost(nominal);
    let query = Type::map(Str, Type::list(Str));
    vec![
        Overload::global("string_to_url", "url", [Str], URL, url).cost(read),
        Overload::global("is_url_string", "isURL", [Str], Bool, is_url),
        part("url_get_scheme", "getScheme", scheme),
        part("url_get_host", "getHost", host),
        part("url_get_hostname", "getHostname", hostname),
        part("url_get_port", "getPort", port),
        part("url_get_escaped_path", "getEscapedPath", escaped_path),
        Overload::member("url_get_query", "getQuery", [URL], query, get_query).cost(nominal),
    ]
}

/// Charges for parsing `text` as a URL, and checks that there is memory for it.
pub(crate) fn read(own: &mut Evaluation<'_, '_>, text: &str) -> Result<(), EvalError> {
    own.work(text.len())?;
    own.has_room(text.len().saturating_mul(UrlValue::MAX_READING_BYTES_PER_BYTE))
}

fn url<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return no_such_overload();
    };
    read(own, text)?;
    let url = UrlValue::parse(text).map_err(|fault| {
        EvalError::failed(format_args!(
            "URL parse error during conversion from string: {fault}"
        ))
    })?;
    Ok(Value::Opaque(Opaque::Url(Arc::new(url))))
}

fn is_url<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(text)] = arguments else {
        return no_such_overload();
    };
    read(own, text)?;
    Ok(Value::Bool(UrlValue::is_request_uri(text)))
}

fn part<'a>(
    own: &mut Evaluation<'_, 'a>,
    arguments: &[Value<'a>],
    part: impl FnOnce(&UrlValue) -> &str,
) -> Computed<'a> {
    match arguments {
        [Value::Opaque(Opaque::Url(url))] => {
            let part = part(url);
            own.allocate_text(part.len())?;
            Ok(Value::string(part))
        }
        _ => no_such_overload(),
    }
}

fn scheme<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(own, arguments, |url| &url.scheme)
}

fn host<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(own, arguments, |url| &url.host)
}

fn hostname<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(own, arguments, UrlValue::hostname)
}

fn port<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(own, arguments, UrlValue::port)
}

fn escaped_path<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    part(own, arguments, |url| &url.escaped_path)
}

fn get_query<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::Opaque(Opaque::Url(url))] = arguments else {
        return no_such_overload();
    };
    let query = url.raw_query().unwrap_or_default();
    let pairs = query.split('&').count();
    own.work(query.len())?;
    own.allocate(query.len() + pairs * Entries::BYTES_PER_ENTRY)?;
    let entries = url.query().into_iter().map(|(key, values)| {
        let values = values.into_iter().map(Value::string).collect();
        (Key::String(Text::from(key)), Value::list(values))
    });
    Ok(Value::map(entries.collect::<Entries<'a>>()))
}
