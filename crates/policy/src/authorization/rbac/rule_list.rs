//! The rules of a role, and the first that allows a request.

use std::ops::Deref;
use std::slice;

use super::rule::{Rule, rule_allows};
use super::rule_table::RuleTable;
use crate::engine::Attributes;

/// The rules of a role. Where there is much to compare they have a table, which sets that share
/// the role share, too.
#[derive(Debug, Clone, Default)]
pub struct RuleList {
    rules: Vec<Rule>,
    table: Option<Box<RuleTable>>,
}

/// Rules with more words than this have a table: to compare fewer takes no longer than look-ups.
/// Random roles of tests have some more and some less.
const MAX_WORDS_TO_COMPARE: usize = if cfg!(test) { 16 } else { 64 };

/// How many bytes a table has for each word. Rules that are larger products are compared.
const BYTES_OF_WORD: usize = 320;

impl RuleList {
    /// The first rule that allows what `attributes` ask, by its index. `visited` counts the
    /// rules that are compared.
    #[must_use]
    pub fn first_allowing(&self, attributes: &Attributes<'_>, visited: &mut usize) -> Option<usize> {
        let allows = |rule: &Rule, visited: &mut usize| {
            *visited += 1;
            rule_allows(rule, attributes)
        };
        let Some(table) = &self.table else {
            return self.rules.iter().position(|rule| allows(rule, visited));
        };
        let compare = |rule: u32, visited: &mut usize| {
            let rule = self.rules.get(rule as usize);
            rule.is_some_and(|rule| allows(rule, visited))
        };
        table
            .first_allowing(attributes, compare, visited)
            .map(|rule| rule as usize)
    }
}

impl From<Vec<Rule>> for RuleList {
    fn from(rules: Vec<Rule>) -> Self {
        let words: usize = rules.iter().map(Rule::words).sum();
        let table = (words > MAX_WORDS_TO_COMPARE).then(|| {
            let mut table = RuleTable::within(words * BYTES_OF_WORD);
            (0..).zip(&rules).for_each(|(at, rule)| table.add(rule, at));
            Box::new(table)
        });
        Self { rules, table }
    }
}

impl Deref for RuleList {
    type Target = [Rule];

    fn deref(&self) -> &[Rule] {
        &self.rules
    }
}

impl<'r> IntoIterator for &'r RuleList {
    type Item = &'r Rule;
    type IntoIter = slice::Iter<'r, Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.rules.iter()
    }
}

/// The table follows from the rules.
impl PartialEq for RuleList {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}

impl Eq for RuleList {}
