//! Patterns that Rust's `regex` reads otherwise, and the bounds.

use super::{CompileFault, Regex, RegexErrorKind};

fn compile(pattern: &str) -> Result<Regex, CompileFault> {
    Regex::new(pattern, &mut |_| true)
}

fn found(pattern: &str, text: &str) -> Vec<String> {
    let regex = compile(pattern).unwrap_or_else(|fault| panic!("{pattern}: {fault:?}"));
    let all = regex.find_all(text, usize::MAX, &mut |_| true).unwrap();
    let matched = regex.is_match(text, &mut |_| true).unwrap();
    assert_eq!(matched, !all.is_empty(), "{pattern} on {text}");
    all.iter().map(|(start, end)| text[*start..*end].into()).collect()
}

fn refused(pattern: &str) -> String {
    match compile(pattern) {
        Err(CompileFault::Invalid(error)) => error.to_string(),
        other => panic!("{pattern}: {other:?}"),
    }
}

#[test]
fn classes_are_of_ascii() {
    assert_eq!(found(r"\w+", "aé_1ж"), ["a", "_1"]);
    assert_eq!(found(r"\d+", "1٣2"), ["1", "2"]);
    assert_eq!(found(r"\s", "a\u{a0}b c\u{b}"), [" "]);
    assert_eq!(found(r"\bé?b", "éb"), ["b"]);
    assert_eq!(found("[[:alpha:]]+", "aßb"), ["a", "b"]);
    assert_eq!(found(r"[^\w]+", "aжb"), ["ж"]);
}

#[test]
fn unicode_names_are_those_of_go() {
    assert_eq!(found(r"\p{Greek}+\PN", "αβγ1δ."), ["αβγ", "δ."]);
    assert_eq!(found(r"\p{greek}\p{Uppercase_Letter}\pN", "αA1"), ["αA1"]);
    assert_eq!(found(r"\p{^Lu}+", "Ab"), ["b"]);
    let unknown = refused(r"\p{Old_Italic}");
    assert_eq!(
        unknown,
        r"error parsing regexp: invalid character class range: `\p{Old_Italic}`"
    );
    assert_eq!(
        refused(r"\p{Nope"),
        r"error parsing regexp: invalid character class range: `\p{Nope`"
    );
}

#[test]
fn what_rust_gives_a_meaning_is_literal() {
    assert_eq!(found("[[a]+", "[a]"), ["[a"]);
    assert_eq!(found("[a&&b]+", "a&b"), ["a&b"]);
    assert_eq!(
        refused("[a--b]+"),
        "error parsing regexp: invalid character class range: `a--`"
    );
    assert_eq!(found("[+--]+", "+,-."), ["+,-"]);
    assert_eq!(found("[a~~b]+", "a~b"), ["a~b"]);
    assert_eq!(found("a{,2}", "aa a{,2}"), ["a{,2}"]);
    assert_eq!(found("{x}", "{x}"), ["{x}"]);
    assert_eq!(found("x{", "x{"), ["x{"]);
}

#[test]
fn what_go_alone_knows_is_known() {
    assert_eq!(found(r"\Qa.b\E+", "a.bb axb"), ["a.bb"]);
    assert_eq!(found(r"\Qa.b", "a.b"), ["a.b"]);
    assert_eq!(found(r"\101\x42\x{43}", "ABC"), ["ABC"]);
    assert_eq!(found("(?P<n>a)(?<m>b)", "ab"), ["ab"]);
    assert_eq!(found("(?U)a+", "aa"), ["a", "a"]);
    assert_eq!(found("(?U)a+?", "aa"), ["aa"]);
    assert_eq!(found("(?P<n>a)(?P<n>b)", "ab"), ["ab"]);
    assert_eq!(found("(?i)k+", "kK\u{212a}"), ["kK\u{212a}"]);
    assert_eq!(found("a$", "a\n"), [""; 0]);
    assert_eq!(found("(?m)a$", "a\nb"), ["a"]);
}

#[test]
fn what_rust_alone_knows_is_refused() {
    let perl = |pattern: &str, part: &str| {
        let expected = format!("error parsing regexp: invalid or unsupported Perl syntax: `{part}`");
        assert_eq!(refused(pattern), expected);
    };
    perl("(?x)a b", "(?x");
    perl("(?u)a", "(?u");
    perl("(?=a)", "(?=");
    assert_eq!(
        refused("(?<!a)b"),
        "error parsing regexp: invalid named capture: `(?<!a)b`"
    );
    for escape in [r"\<", r"\>"] {
        assert_eq!(found(escape, "<a>"), [&escape[1..]]);
    }
    let escape = |pattern: &str, part: &str| {
        let expected = format!("error parsing regexp: invalid escape sequence: `{part}`");
        assert_eq!(refused(pattern), expected);
    };
    escape(r"a\h", r"\h");
    escape(r"\u0041", r"\u");
    escape(r"\C", r"\C");
    escape(r"\8", r"\8");
    escape(r"\x{110000}", r"\x{110000");
    escape(r"[\b]", r"\b");
    assert_eq!(found(r"\b{start}", "a{start}"), ["{start}"]);
}

#[test]
fn repetition_ends_at_a_thousand() {
    assert_eq!(found("^a{1000}$", &"a".repeat(1000)).len(), 1);
    let count = |part: &str| format!("error parsing regexp: invalid repeat count: `{part}`");
    assert_eq!(refused("a{1001}"), count("{1001}"));
    assert_eq!(refused("a{2,1}"), count("{2,1}"));
    assert_eq!(refused("a{99999999999}"), count("{99999999999}"));
    assert_eq!(refused("(a{30}){40}"), count("{40}"));
    assert!(compile("((a{10}){10}){10}").is_ok());
    let nested = |part: &str| format!("error parsing regexp: invalid nested repetition operator: `{part}`");
    assert_eq!(refused("a**"), nested("**"));
    assert_eq!(refused("a+?{2}"), nested("+?{2}"));
    assert_eq!(
        refused("|*"),
        "error parsing regexp: missing argument to repetition operator: `*`"
    );
}

#[test]
fn brackets_and_parentheses_close() {
    assert_eq!(refused("(a"), "error parsing regexp: missing closing ): `(a`");
    assert_eq!(refused("a)"), "error parsing regexp: unexpected ): `a)`");
    assert_eq!(refused("a[b"), "error parsing regexp: missing closing ]: `[b`");
    assert_eq!(
        refused("a\\"),
        "error parsing regexp: trailing backslash at end of expression: ``"
    );
    assert_eq!(
        refused("(?P<n"),
        "error parsing regexp: invalid named capture: `(?P<n`"
    );
    assert_eq!(
        refused("[[:nope:]]"),
        "error parsing regexp: invalid character class range: `[:nope:]`"
    );
}

#[test]
fn nesting_ends_where_that_of_go_does() {
    let nested = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(compile(&nested(999)).is_ok());
    assert_eq!(
        compile(&nested(1000)).err(),
        Some(RegexErrorKind::TooDeep.of(&nested(1000)))
    );
    // Alternatives that begin alike nest by what they share.
    let prefixes = |count: usize| {
        let all: Vec<String> = (1..=count).map(|length| "a".repeat(length)).collect();
        all.join("|")
    };
    assert!(compile(&prefixes(300)).is_ok());
    assert_eq!(
        compile(&prefixes(1200)).err(),
        Some(RegexErrorKind::TooDeep.of(&prefixes(1200)))
    );
}

#[test]
fn patterns_of_real_policies_fit() {
    let image = r":[\w][\w.-]{0,127}(\/)?";
    assert_eq!(found(image, "registry/app:v1.2/"), [":v1.2/"]);
    assert!(compile(r"\pL{1000}").is_ok());
}

#[test]
fn what_is_too_large_is_refused_before_it_takes_memory() {
    for pattern in [
        "(?:\\pL{1000}){1}".repeat(40),
        r"[^a]{1000}".repeat(400),
        r"\pL".repeat(10_000),
    ] {
        assert_eq!(
            compile(&pattern).err(),
            Some(RegexErrorKind::TooLarge.of(&pattern))
        );
    }
}

#[test]
fn the_meter_stops_parsing_and_searching() {
    let pattern = "(a|b|[cd])*e".repeat(10_000);
    let mut asked = 0;
    let stopped = Regex::new(&pattern, &mut |_| {
        asked += 1;
        asked < 3
    });
    assert_eq!((stopped.err(), asked), (Some(CompileFault::Stopped), 3));

    let regex = compile("(?:a|b)*c[a-z]{500}").unwrap();
    let text = "ab".repeat(1 << 16);
    let mut looks = 0;
    let mut most = 0;
    let matched = regex.is_match(&text, &mut |steps| {
        looks += 1;
        most = most.max(steps);
        true
    });
    assert_eq!(matched, Ok(false));
    assert!(looks > 100 && most <= 1 << 18, "{looks} looks, {most} steps");
    assert!(regex.is_match(&text, &mut |_| false).is_err());
}

#[test]
fn empty_matches_are_found_as_go_finds_them() {
    let empty = |pattern: &str, text: &str| {
        let regex = compile(pattern).unwrap();
        regex.find_all(text, usize::MAX, &mut |_| true).unwrap()
    };
    assert_eq!(empty("a*", "baac"), [(0, 0), (1, 3), (4, 4)]);
    assert_eq!(empty("", "é"), [(0, 0), (2, 2)]);
    assert_eq!(empty(r"\B", "é"), [(0, 0), (2, 2)]);
    assert_eq!(empty("a|", "aa"), [(0, 1), (1, 2)]);
}
