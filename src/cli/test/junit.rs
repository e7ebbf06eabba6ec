//! The outcome of a run as JUnit's XML, which CI services show case by case.

use std::fmt::Write as _;

use super::run::CaseOutcome;

/// A `testsuite` for each file, and one for faults, if there are any.
pub(crate) fn junit(cases: &[CaseOutcome], faults: &[String]) -> String {
    let mut files: Vec<&str> = cases.iter().map(|case| case.file.as_str()).collect();
    files.dedup();
    let failed = cases.iter().filter(|case| !case.passed()).count();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to text does not fail.
    let _ = writeln!(
        xml,
        "<testsuites name=\"portcullis\" tests=\"{}\" failures=\"{failed}\" errors=\"{}\">",
        cases.len() + faults.len(),
        faults.len()
    );
    for file in files {
        let own: Vec<&CaseOutcome> = cases.iter().filter(|case| case.file == file).collect();
        let failed = own.iter().filter(|case| !case.passed()).count();
        let name = escaped(file);
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\">",
            own.len()
        );
        own.iter().for_each(|case| write_case(&mut xml, case));
        xml.push_str("  </testsuite>\n");
    }
    if !faults.is_empty() {
        let count = faults.len();
        let _ = writeln!(
            xml,
            "  <testsuite name=\"faults\" tests=\"{count}\" failures=\"0\" errors=\"{count}\">"
        );
        for fault in faults {
            let fault = escaped(fault);
            let _ = write!(
                xml,
                "    <testcase name=\"{fault}\" classname=\"faults\">\n      <error message=\"{fault}\"/>\n    </testcase>\n"
            );
        }
        xml.push_str("  </testsuite>\n");
    }
    xml + "</testsuites>\n"
}

fn write_case(xml: &mut String, case: &CaseOutcome) {
    let (name, file) = (escaped(&case.name), escaped(&case.file));
    let _ = write!(
        xml,
        "    <testcase name=\"{name}\" classname=\"{file}\" file=\"{file}\" line=\"{}\"",
        case.line
    );
    if case.passed() {
        xml.push_str("/>\n");
        return;
    }
    let text = escaped(case.in_words().as_str());
    let message = escaped(&case.summary());
    let _ = write!(
        xml,
        ">\n      <failure message=\"{message}\">{text}</failure>\n    </testcase>\n"
    );
}

/// As text or within quotes. What no XML may have is replaced.
pub(crate) fn escaped(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => written.push_str("&amp;"),
            '<' => written.push_str("&lt;"),
            '>' => written.push_str("&gt;"),
            '"' => written.push_str("&quot;"),
            '\n' | '\t' => {
                let _ = write!(written, "&#{};", u32::from(char));
            }
            char if char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}') => written.push('\u{fffd}'),
            char => written.push(char),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_may_not_have_is_escaped_or_replaced() {
        assert_eq!(
            escaped("a<b>&\"c\"\n\u{1b}[0m"),
            "a&lt;b&gt;&amp;&quot;c&quot;&#10;\u{fffd}[0m"
        );
    }
}
