//! Named string formats (apiserver `pkg/cel/library/format.go`).

use std::borrow::Cow;
use std::sync::LazyLock;

use super::standard::{Computed, no_such_overload};
use super::{TextWriter, urls};
use crate::evaluate::Evaluation;
use crate::function::{Cost, Overload};
use crate::program::Call;
use crate::regex::Regex;
use crate::types::Type::{self, String as Str};
use crate::value::{Opaque, Text, Timestamp, UrlValue, Value};
use crate::{EvalError, cost};

/// The CEL type of a named format.
pub(crate) const FORMAT: Type = Type::Opaque("kubernetes.NamedFormat");

/// A named format, against which strings are validated.
#[derive(Debug)]
pub struct NamedFormat {
    pub(crate) name: &'static str,
    function: &'static str,
    check: FormatCheck,
    /// The size that upstream's cost estimate assumes for its regular expression (`MaxRegexSize`).
    regex_size: u64,
}

/// How a string is validated.
#[derive(Debug, Clone, Copy)]
enum FormatCheck {
    /// By a function, whose messages do not quote the string.
    Faults(fn(&str) -> Vec<String>),
    Uri,
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat::new(
        "dns1123Label",
        "format.dns1123Label",
        |text| dns1123_label(text, false),
        30,
    ),
    NamedFormat::new(
        "dns1123Subdomain",
        "format.dns1123Subdomain",
        |text| dns1123_subdomain(text, false),
        60,
    ),
    NamedFormat::new(
        "dns1035Label",
        "format.dns1035Label",
        |text| dns1035_label(text, false),
        30,
    ),
    NamedFormat::new("qualifiedName", "format.qualifiedName", qualified_name, 60),
    NamedFormat::new(
        "dns1123LabelPrefix",
        "format.dns1123LabelPrefix",
        |text| dns1123_label(text, true),
        30,
    ),
    NamedFormat::new(
        "dns1123SubdomainPrefix",
        "format.dns1123SubdomainPrefix",
        |text| dns1123_subdomain(text, true),
        60,
    ),
    NamedFormat::new(
        "dns1035LabelPrefix",
        "format.dns1035LabelPrefix",
        |text| dns1035_label(text, true),
        30,
    ),
    NamedFormat::new("labelValue", "format.labelValue", label_value, 40),
    NamedFormat {
        name: "uri",
        function: "format.uri",
        check: FormatCheck::Uri,
        regex_size: 1103,
    },
    NamedFormat::new(
        "uuid",
        "format.uuid",
        |text| unless(UUID.is_match(text), "does not match the UUID format"),
        70,
    ),
    NamedFormat::new(
        "byte",
        "format.byte",
        |text| unless(BASE64.is_match(text), "invalid base64"),
        84,
    ),
    NamedFormat::new(
        "date",
        "format.date",
        |text| unless(is_date(text), "invalid date"),
        71,
    ),
    NamedFormat::new(
        "datetime",
        "format.datetime",
        |text| unless(is_datetime(text), "invalid datetime"),
        71,
    ),
];

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

static LABEL_REGEX: LazyLock<Whole> = LazyLock::new(|| whole(LABEL));
static SUBDOMAIN_REGEX: LazyLock<Whole> = LazyLock::new(|| whole(SUBDOMAIN));
static LABEL_1035_REGEX: LazyLock<Whole> = LazyLock::new(|| whole(LABEL_1035));
static NAME_REGEX: LazyLock<Whole> = LazyLock::new(|| whole(NAME));
static LABEL_VALUE_REGEX: LazyLock<Whole> = LazyLock::new(|| whole(LABEL_VALUE));
static UUID: LazyLock<Whole> =
    LazyLock::new(|| whole("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"));
static BASE64: LazyLock<Whole> =
    LazyLock::new(|| whole("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"));
static CLOCK: LazyLock<Whole> =
    LazyLock::new(|| whole("([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?([zZ]|([+-][0-9]{2}:[0-9]{2}))"));

#[expect(
    clippy::expect_used,
    reason = "the patterns are the constants above; a test compiles each"
)]
fn whole(pattern: &str) -> Whole {
    Whole(Regex::new(&format!("^(?:{pattern})$"), &mut |_| true).expect("a constant pattern"))
}

/// A pattern that has to match the whole string.
struct Whole(Regex);

impl Whole {
    /// Whether the string matches. It is read once, and that is not metered.
    fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text, &mut |_| true) == Ok(true)
    }
}

impl NamedFormat {
    const fn new(
        name: &'static str,
        function: &'static str,
        check: fn(&str) -> Vec<String>,
        regex_size: u64,
    ) -> Self {
        Self {
            name,
            function,
            check: FormatCheck::Faults(check),
            regex_size,
        }
    }

    /// The messages about `text` as CEL values; none if it is valid.
    fn faults<'a>(&self, own: &mut Evaluation<'_, 'a>, text: &str) -> Result<Vec<Value<'a>>, EvalError> {
        match self.check {
            FormatCheck::Uri => {
                urls::read(own, text)?;
                let Err(fault) = UrlValue::check_request(text) else {
                    return Ok(Vec::new());
                };
                let mut out = TextWriter::new(own);
                out.display(fault)?;
                Ok(vec![out.finish()?])
            }
            FormatCheck::Faults(check) => {
                // `masked` copies a prefix.
                own.allocate_text(text.len())?;
                own.release(text.len() + Text::BYTES);
                let faults = check(text).into_iter();
                faults
                    .map(|fault| {
                        own.allocate_text(fault.len())?;
                        Ok(Value::string(fault))
                    })
                    .collect()
            }
        }
    }
}

pub(crate) fn functions() -> Vec<Overload> {
    let nominal = Cost::OfFunction(|_, _| 1);
    let matched = Cost::OfFunction(|arguments, _| match arguments {
        [Value::Opaque(Opaque::Format(format)), text] => {
            cost::regex(cost::plain_size(text), format.regex_size)
        }
        _ => 1,
    });
    let faults = Type::optional(Type::list(Str));
    let mut all = vec![
        Overload::member("format-validate", "validate", [FORMAT, Str], faults, validate).cost(matched),
        Overload::global(
            "format-named",
            "format.named",
            [Str],
            Type::optional(FORMAT),
            named,
        )
        .cost(nominal),
    ];
    for format in &FORMATS {
        all.push(Overload::global(
            format.function,
            format.function,
            [],
            FORMAT,
            constant,
        ));
    }
    all
}

fn constant<'a>(_: &mut Evaluation<'_, 'a>, call: &'a Call, _: &[Value<'a>]) -> Computed<'a> {
    let name = call.overloads.first().map_or("", |overload| overload.name);
    let format = FORMATS.iter().find(|format| format.function == name);
    format.map_or_else(no_such_overload, |format| {
        Ok(Value::Opaque(Opaque::Format(format)))
    })
}

fn named<'a>(_: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::String(name)] = arguments else {
        return no_such_overload();
    };
    let format = FORMATS.iter().find(|format| format.name == &**name);
    Ok(format.map_or(Value::none(), |format| {
        Value::some(Value::Opaque(Opaque::Format(format)))
    }))
}

fn validate<'a>(own: &mut Evaluation<'_, 'a>, _: &'a Call, arguments: &[Value<'a>]) -> Computed<'a> {
    let [Value::Opaque(Opaque::Format(format)), Value::String(text)] = arguments else {
        return no_such_overload();
    };
    let faults = format.faults(own, text)?;
    if faults.is_empty() {
        return Ok(Value::none());
    }
    own.allocate_items(faults.len())?;
    Ok(Value::some(Value::list(faults)))
}

fn unless(fits: bool, fault: &str) -> Vec<String> {
    if fits { Vec::new() } else { vec![fault.into()] }
}

/// For DNS names, too, upstream counts bytes, but calls them `characters` in its messages.
fn too_long(most: usize, units: &str) -> String {
    format!("must be no more than {most} {units}")
}

/// `message` with examples and the pattern, in the words of apimachinery's `validation.RegexError`.
fn explained(message: &str, pattern: &str, examples: [&str; 2]) -> String {
    let [first, second] = examples;
    format!("{message} (e.g. '{first}',  or '{second}', regex used for validation is '{pattern}')")
}

/// A prefix of a name may end in a hyphen: `maskTrailingDash` of apimachinery's `validation`.
fn masked(name: &str, prefix: bool) -> Cow<'_, str> {
    match name.strip_suffix('-') {
        Some(before) if prefix && !before.is_empty() => {
            let kept = before.char_indices().next_back().map_or(0, |(last, _)| last);
            Cow::Owned(before.get(..kept).unwrap_or_default().to_owned() + "a")
        }
        _ => Cow::Borrowed(name),
    }
}

pub(crate) fn dns1123_label(name: &str, prefix: bool) -> Vec<String> {
    let name = masked(name, prefix);
    let mut faults = unless(name.len() <= 63, &too_long(63, "characters"));
    if !LABEL_REGEX.is_match(&name) {
        faults.push(if SUBDOMAIN_REGEX.is_match(&name) {
            "must not contain dots".into()
        } else {
            let message = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
            explained(message, LABEL, ["my-name", "123-abc"])
        });
    }
    faults
}

pub(crate) fn dns1123_subdomain(name: &str, prefix: bool) -> Vec<String> {
    subdomain(&masked(name, prefix), "characters")
}

fn subdomain(name: &str, units: &str) -> Vec<String> {
    let mut faults = unless(name.len() <= 253, &too_long(253, units));
    if !SUBDOMAIN_REGEX.is_match(name) {
        let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        faults.push(format!(
            "{message} (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
        ));
    }
    faults
}

fn dns1035_label(name: &str, prefix: bool) -> Vec<String> {
    let name = masked(name, prefix);
    let mut faults = unless(name.len() <= 63, &too_long(63, "characters"));
    if !LABEL_1035_REGEX.is_match(&name) {
        let message = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        faults.push(explained(message, LABEL_1035, ["my-name", "abc-123"]));
    }
    faults
}

fn name_fault() -> String {
    let message = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    format!("{message} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME}')")
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".into());
            } else {
                let prefix_faults = subdomain(prefix, "bytes").into_iter();
                faults.extend(prefix_faults.map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => {
            let fault = name_fault();
            let rest = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {fault} {rest}")];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        faults.push(format!("name part {}", too_long(63, "bytes")));
    }
    if !NAME_REGEX.is_match(name) {
        faults.push(format!("name part {}", name_fault()));
    }
    faults
}

fn label_value(text: &str) -> Vec<String> {
    let mut faults = unless(text.len() <= 63, &too_long(63, "bytes"));
    if !LABEL_VALUE_REGEX.is_match(text) {
        let message = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        let examples = "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is";
        faults.push(format!("{message} {examples} '{LABEL_VALUE}')"));
    }
    faults
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_some()
}

fn is_datetime(text: &str) -> bool {
    let mut parts = text.split(['t', 'T']);
    let (Some(date), Some(clock)) = (parts.next(), parts.next()) else {
        return false;
    };
    // The places of hours, minutes and seconds in `HH:MM:SS`, if the pattern matches.
    let below = |at: usize, most: &str| clock.get(at..at + 2).is_some_and(|part| part <= most);
    is_date(date) && CLOCK.is_match(clock) && below(0, "23") && below(3, "59") && below(6, "59")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for format in &FORMATS {
            assert!(
                match format.check {
                    FormatCheck::Faults(check) => !check("/ü/").is_empty(),
                    FormatCheck::Uri => true,
                },
                "{}",
                format.name
            );
        }
        assert!(is_datetime("2021-01-01T00:00:00Z") && !is_datetime("2021-01-01T24:00:00Z"));
    }

    #[test]
    fn prefixes_may_end_in_a_hyphen() {
        assert!(dns1123_label("my-label-prefix-", true).is_empty());
        assert!(!dns1123_label("my-label-prefix-", false).is_empty());
        assert!(dns1123_subdomain("mysubdomain.prefix.-", true).is_empty());
    }
}
