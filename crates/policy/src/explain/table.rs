//! Tables in text: columns as wide as they need to be, two blanks between them.

use super::Lines;
use super::lines::one_line;

/// Rows below a heading.
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub fn new(heading: &[&str]) -> Self {
        Self {
            rows: vec![heading.iter().map(|&cell| cell.to_owned()).collect()],
        }
    }

    /// Adds a row. Each cell is [one line](one_line).
    pub fn row(&mut self, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| one_line(cell).into_owned());
        self.rows.push(cells.collect());
    }

    /// The rows, one a line.
    #[must_use]
    pub fn in_words(&self) -> Lines {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths);
            let line: String = cells.map(|(cell, width)| format!("{cell:width$}  ")).collect();
            line.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_with_text() {
        let mut table = TextTable::new(&["A", "LONG", "B"]);
        table.row(vec!["wide".to_owned(), "-".to_owned(), String::new()]);
        table.row(vec!["é".to_owned(), String::new(), "b".to_owned()]);
        assert_eq!(
            table.in_words().as_str(),
            "A     LONG  B\nwide  -\né           b\n"
        );
    }
}
