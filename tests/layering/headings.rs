//! The headings over implementations name what follows them.

use crate::sources;

const HEADING: &str = "// === impl ";

#[test]
fn a_heading_names_the_type_that_is_implemented_below_it() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(name) = line.strip_prefix(HEADING) else {
                continue;
            };
            let below = lines[index + 1..].iter();
            let mut below = below.take_while(|line| !line.starts_with(HEADING));
            let first = name.trim_end_matches('=').split_whitespace().next().unwrap();
            if !below.any(|line| line.starts_with("impl") && names(line, first)) {
                wrong.push(format!("{}:{}: {line}", source.path, index + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether `name` is among the words of `line`.
fn names(line: &str, name: &str) -> bool {
    line.split(|char: char| !char.is_alphanumeric() && char != '_')
        .any(|word| word == name)
}
