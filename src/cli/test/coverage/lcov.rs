//! Coverage in the format of lcov (`man geninfo`), which editors and CI services read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Coverage, CoveredItem, CoveredPlace};

/// A record for each file: its lines, and for what is true or false a branch for each.
pub(crate) fn lcov(coverage: &Coverage) -> String {
    let mut files: BTreeMap<&str, Vec<(&CoveredPlace, &CoveredItem)>> = BTreeMap::new();
    for (place, item) in &coverage.0 {
        files.entry(&place.file).or_default().push((place, item));
    }
    let mut text = String::new();
    for (file, items) in files {
        // Writing to text does not fail.
        let _ = write!(text, "TN:\nSF:{file}\n");
        branches(&mut text, &items);
        lines(&mut text, &items);
        text.push_str("end_of_record\n");
    }
    text
}

fn branches(text: &mut String, items: &[(&CoveredPlace, &CoveredItem)]) {
    let sided = items.iter().filter(|(place, _)| place.item.part.has_two_sides());
    let (mut found, mut hit) = (0, 0);
    for (block, (place, item)) in sided.enumerate() {
        for (branch, taken) in [item.held, item.failed].into_iter().enumerate() {
            let count = if item.reached == 0 {
                "-".to_owned()
            } else {
                taken.to_string()
            };
            let _ = writeln!(text, "BRDA:{},{block},{branch},{count}", place.line);
            found += 1;
            hit += usize::from(taken > 0);
        }
    }
    if found > 0 {
        let _ = write!(text, "BRF:{found}\nBRH:{hit}\n");
    }
}

/// Of several items on a line the one that was reached least counts.
fn lines(text: &mut String, items: &[(&CoveredPlace, &CoveredItem)]) {
    let mut lines: BTreeMap<u32, u64> = BTreeMap::new();
    for (place, item) in items {
        let least = lines.entry(place.line).or_insert(item.reached);
        *least = (*least).min(item.reached);
    }
    for (line, reached) in &lines {
        let _ = writeln!(text, "DA:{line},{reached}");
    }
    let hit = lines.values().filter(|reached| **reached > 0).count();
    let _ = write!(text, "LF:{}\nLH:{hit}\n", lines.len());
}
