//! Whether one table of types has what another has.

use std::collections::{BTreeMap, BTreeSet};

/// A table, read.
struct Table<'t> {
    /// Group, version and kind; and its type.
    kinds: BTreeMap<&'t str, &'t str>,
    /// The words of each type, but for its name.
    types: BTreeMap<&'t str, Vec<&'t str>>,
}

/// What `own` has that `joined` lacks, or has otherwise.
pub(super) fn missing(joined: &str, own: &str) -> BTreeSet<String> {
    let (joined, own) = (Table::read(joined), Table::read(own));
    assert!(own.kinds.len() > 50, "{:?}", own.kinds);
    let (mut missing, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (kind, of) in &own.kinds {
        match joined.kinds.get(kind) {
            Some(there) => compare((&joined, there), (&own, of), &mut seen, &mut missing),
            None => {
                missing.insert(format!("kind {kind}"));
            }
        }
    }
    missing
}

impl<'t> Table<'t> {
    fn read(text: &'t str) -> Self {
        let mut table = Self {
            kinds: BTreeMap::new(),
            types: BTreeMap::new(),
        };
        for line in text.lines() {
            if let Some((kind, of)) = line.strip_prefix("kind ").and_then(|line| line.rsplit_once(' ')) {
                table.kinds.insert(kind, of);
            } else if let Some(line) = line.strip_prefix("type ") {
                let mut words = line.split(' ');
                table.types.insert(words.next().unwrap(), words.collect());
            }
        }
        table
    }
}

/// Compares two types, field by field; names of types tell nothing.
fn compare<'t>(
    (joined, there): (&Table<'t>, &'t str),
    (own, here): (&Table<'t>, &'t str),
    seen: &mut BTreeSet<(&'t str, &'t str)>,
    missing: &mut BTreeSet<String>,
) {
    if !seen.insert((there, here)) {
        return;
    }
    let fields: BTreeMap<&str, &'t str> = joined.types[there]
        .iter()
        .filter_map(|word| word.split_once(':'))
        .collect();
    for word in &own.types[here] {
        let Some((field, of)) = word.split_once(':') else {
            if !joined.types[there].contains(word) {
                missing.insert(format!("{here} {word}"));
            }
            continue;
        };
        let Some(other) = fields.get(field) else {
            missing.insert(format!("{here}.{field}"));
            continue;
        };
        let (shape, names) = parts(own, of);
        let (other_shape, other_names) = parts(joined, other);
        if shape != other_shape {
            missing.insert(format!("{here}.{field}: {of}, not {other}"));
            continue;
        }
        for (there, here) in other_names.into_iter().zip(names) {
            compare((joined, there), (own, here), seen, missing);
        }
    }
}

/// What is written of a type without the names in it, and these.
fn parts<'t>(table: &Table<'t>, of: &'t str) -> (String, Vec<&'t str>) {
    let is_of_name = |character: char| character.is_alphanumeric() || character == '.';
    let (mut shape, mut names) = (String::new(), Vec::new());
    let mut rest = of;
    while let Some(first) = rest.chars().next() {
        let length = match is_of_name(first) {
            true => rest
                .find(|character| !is_of_name(character))
                .unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        if table.types.contains_key(word) {
            names.push(word);
            shape.push('@');
        } else {
            shape.push_str(word);
        }
        rest = after;
    }
    (shape, names)
}

pub(crate) fn what_is_missing_is_found() {
    let kinds = |of: &str| -> String {
        (0..60)
            .map(|number| format!("kind v1 K{number} {of}\n"))
            .collect()
    };
    let joined = kinds("a.b") + "type a.b x:str y:map(k)[c.d] z:!c.d\ntype c.d ! k:str l:num\n";
    let own = kinds("e.f") + "type e.f y:map(k)[g.h] z:!g.h\ntype g.h ! k:str\n";
    assert_eq!(missing(&joined, &own), BTreeSet::new());
    let found = |from: &str, to: &str| -> Vec<String> {
        assert!(own.contains(from));
        missing(&joined, &own.replace(from, to)).into_iter().collect()
    };
    assert_eq!(found("kind v1 K1 ", "kind v2 K1 "), ["kind v2 K1"]);
    assert_eq!(found("k:str\n", "k:str m:str\n"), ["g.h.m"]);
    assert_eq!(found("k:str\n", "k:num\n"), ["g.h.k: num, not str"]);
    assert_eq!(found("map(k)", "map(l)"), ["e.f.y: map(l)[g.h], not map(k)[c.d]"]);
    let granular = joined.replace("type c.d !", "type c.d");
    assert_eq!(
        missing(&granular, &own).into_iter().collect::<Vec<_>>(),
        ["g.h !"]
    );
}
