//! Suggestions for misspelled words.

/// The one of `words` that is nearest to `written`, where it is near enough to be a slip:
/// singular for plural, another case, or up to a third of its letters mistyped.
pub(crate) fn nearest<'w>(written: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let lower = written.to_ascii_lowercase();
    let allowed = (written.chars().count() / 3).clamp(1, 3);
    words
        .into_iter()
        .filter(|word| *word != written)
        .map(|word| (distance(&lower, &word.to_ascii_lowercase()), word))
        .filter(|(distance, word)| *distance <= allowed || is_plural(&lower, word))
        .min()
        .map(|(_, word)| word)
}

fn is_plural(singular: &str, word: &str) -> bool {
    let stem = singular.strip_suffix('y').unwrap_or(singular);
    word.strip_prefix(stem)
        .is_some_and(|ending| ["s", "es", "ies"].contains(&ending))
}

/// How many letters must be added, left out, replaced or swapped with their neighbour
/// (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, counterpart) in other.iter().enumerate() {
            let cell = |line: &[usize], at: usize| line.get(at).copied().unwrap_or(usize::MAX - 1);
            let replaced = cell(&last, column) + usize::from(letter != counterpart);
            let mut best = replaced
                .min(cell(&last, column + 1) + 1)
                .min(cell(&next, column) + 1);
            let swapped = row > 0
                && column > 0
                && one.get(row - 1) == Some(counterpart)
                && other.get(column - 1) == Some(letter);
            if swapped {
                best = best.min(cell(&before, column - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_has_a_nearest_word() {
        let words = ["pods", "policies", "deployments", "get", "delete"];
        for (written, meant) in [
            ("gett", Some("get")),
            ("gte", Some("get")),
            ("pod", Some("pods")),
            ("policy", Some("policies")),
            ("Pods", Some("pods")),
            ("deploymnets", Some("deployments")),
            ("widgets", None),
            ("x", None),
        ] {
            assert_eq!(nearest(written, words), meant, "{written}");
        }
    }

    #[test]
    fn distances_are_those_of_the_textbook() {
        for (one, other, expected) in [
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("é", "e", 1),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }
}
