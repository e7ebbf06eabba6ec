//! The file of recorded counts, and how new counts are compared with it.

use std::fmt;

/// By how many percent instructions may grow.
const MARGIN: u64 = 3;

/// What one case costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CaseCount {
    pub(crate) name: String,
    pub(crate) instructions: u64,
    pub(crate) allocations: u64,
}

/// What all cases cost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CountRecord(pub(crate) Vec<CaseCount>);

// === impl CountRecord ===

impl CountRecord {
    /// Reads the file.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let counts = lines.filter(|line| !line.trim().is_empty()).map(|line| {
            let mut words = line.split_whitespace();
            let mut number = || words.next()?.parse().ok();
            let (instructions, allocations) = (number(), number());
            let name: Vec<&str> = words.collect();
            match (instructions, allocations) {
                (Some(instructions), Some(allocations)) if !name.is_empty() => Ok(CaseCount {
                    name: name.join(" "),
                    instructions,
                    allocations,
                }),
                _ => Err(format!(
                    "benches/instructions.txt: `{line}` is not instructions, allocations and a name"
                )),
            }
        });
        counts.collect::<Result<_, _>>().map(Self)
    }

    /// For each case the median of the runs, of instructions and of allocations. `runs` have the same cases.
    pub(crate) fn median(runs: &[Self]) -> Self {
        let middle = |case: usize, number: fn(&CaseCount) -> u64| {
            let mut numbers: Vec<u64> = runs.iter().map(|run| number(&run.0[case])).collect();
            numbers.sort_unstable();
            numbers[numbers.len() / 2]
        };
        let cases = runs.first().map_or(&[][..], |run| &run.0);
        let medians = cases.iter().enumerate().map(|(case, count)| CaseCount {
            name: count.name.clone(),
            instructions: middle(case, |count| count.instructions),
            allocations: middle(case, |count| count.allocations),
        });
        Self(medians.collect())
    }

    /// What is worse here than in `recorded`, or missing in either.
    pub(crate) fn compare(&self, recorded: &Self) -> Vec<String> {
        let named = |record: &Self, name: &str| record.0.iter().find(|count| count.name == name).cloned();
        let mut faults = Vec::new();
        for count in &self.0 {
            match named(recorded, &count.name) {
                Some(before) => faults.extend(count.compare(&before)),
                None => faults.push(format!("`{}` is not in benches/instructions.txt", count.name)),
            }
        }
        for before in &recorded.0 {
            if named(self, &before.name).is_none() {
                faults.push(format!(
                    "`{}` of benches/instructions.txt is not counted",
                    before.name
                ));
            }
        }
        faults
    }
}

impl fmt::Display for CountRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Written by `just instructions --record`; benches/README.md says what it is for."
        )?;
        writeln!(f, "# instructions  allocations  case")?;
        for CaseCount {
            name,
            instructions,
            allocations,
        } in &self.0
        {
            writeln!(f, "{instructions:14} {allocations:12}  {name}")?;
        }
        Ok(())
    }
}

// === impl CaseCount ===

impl CaseCount {
    fn compare(&self, before: &Self) -> Option<String> {
        let limit = before.instructions + before.instructions * MARGIN / 100;
        let is_worse = self.instructions > limit || self.allocations > before.allocations;
        is_worse.then(|| {
            format!(
                "`{}` costs {} instructions and {} allocations; recorded are {} and {}",
                self.name, self.instructions, self.allocations, before.instructions, before.allocations
            )
        })
    }
}

/// The instructions of a dump of callgrind.
pub(crate) fn total(dump: &str) -> Option<u64> {
    let totals = dump.lines().find_map(|line| line.strip_prefix("totals:"))?;
    totals.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(counts: &[(&str, u64, u64)]) -> CountRecord {
        let count = |&(name, instructions, allocations): &(&str, u64, u64)| CaseCount {
            name: name.to_owned(),
            instructions,
            allocations,
        };
        CountRecord(counts.iter().map(count).collect())
    }

    #[test]
    fn what_is_written_is_read_again() {
        let counts = record(&[("decode", 12_345, 6), ("admission, 2 KB", 7, 0)]);
        assert_eq!(CountRecord::parse(&counts.to_string()), Ok(counts));
        assert!(CountRecord::parse("1 decode").is_err());
    }

    #[test]
    fn a_run_that_was_unlucky_does_not_count() {
        let runs = [2, 9, 3].map(|number| record(&[("decide", number, 0), ("load", 10 * number, 1)]));
        assert_eq!(
            CountRecord::median(&runs),
            record(&[("decide", 3, 0), ("load", 30, 1)])
        );
    }

    #[test]
    fn three_hundredths_more_is_too_much_and_so_is_an_allocation() {
        let before = record(&[("decide", 1000, 0)]);
        for (counts, is_fault) in [
            (&[("decide", 1030, 0)][..], false),
            (&[("decide", 1031, 0)], true),
            (&[("decide", 900, 1)], true),
            (&[("decide", 10, 0)], false),
            (&[], true),
            (&[("decide", 1000, 0), ("other", 1, 0)], true),
        ] {
            assert_eq!(
                !record(counts).compare(&before).is_empty(),
                is_fault,
                "{counts:?}"
            );
        }
    }

    #[test]
    fn a_dump_has_a_total() {
        assert_eq!(total("version: 1\nsummary: 12\n\ntotals: 345\n"), Some(345));
        assert_eq!(total("version: 1\n"), None);
    }
}
