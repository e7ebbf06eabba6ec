//! Text as HTML, with the characters shown that one does not see.
//!
//! Who chooses a user's name can put characters into it that turn the direction of what is read,
//! or that take no room, so that it looks like another name. The templates show them by their
//! numbers, as `\u{202e}`. `askama.toml` says which escaper is used for what: [`VisibleText`]
//! wherever a template names none, [`VisibleLines`] as `|e("lines")` for text of several lines.
//! The values of form fields are sent again, and so must stay as they are: `|e("exact")`.

use std::fmt::{self, Write};

use askama::filters::{Escaper, Html};

/// Shows every character that cannot be seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisibleText;

/// Shows every character that cannot be seen but line breaks and tabs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisibleLines;

/// Shows every character as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExactText;

// === impl VisibleText ===

impl Escaper for VisibleText {
    fn write_escaped_str<W: Write>(&self, dest: W, string: &str) -> fmt::Result {
        write(dest, string, is_invisible)
    }
}

// === impl VisibleLines ===

impl Escaper for VisibleLines {
    fn write_escaped_str<W: Write>(&self, dest: W, string: &str) -> fmt::Result {
        write(dest, string, |character| {
            !matches!(character, '\n' | '\t') && is_invisible(character)
        })
    }
}

// === impl ExactText ===

impl Escaper for ExactText {
    fn write_escaped_str<W: Write>(&self, dest: W, string: &str) -> fmt::Result {
        Html.write_escaped_str(dest, string)
    }
}

fn write<W: Write>(mut dest: W, string: &str, is_hidden: impl Fn(char) -> bool) -> fmt::Result {
    let mut rest = string;
    while let Some(place) = rest.find(&is_hidden) {
        let (before, from) = rest.split_at(place);
        Html.write_escaped_str(&mut dest, before)?;
        let mut characters = from.chars();
        if let Some(hidden) = characters.next() {
            write!(dest, "{}", hidden.escape_unicode())?;
        }
        rest = characters.as_str();
    }
    Html.write_escaped_str(dest, rest)
}

/// Whether a character takes no room or changes how those around it are read: controls, and
/// what Unicode calls format characters, separators of lines and ignorable by default.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(escaper: impl Escaper, text: &str) -> String {
        let mut shown = String::new();
        escaper.write_escaped_str(&mut shown, text).unwrap();
        shown
    }

    #[test]
    fn what_changes_how_a_name_is_read_is_shown_by_its_number() {
        for (text, expected) in [
            ("jane", "jane"),
            ("Zoë \u{5d0}\u{5d1} 山 e\u{301}", "Zoë \u{5d0}\u{5d1} 山 e\u{301}"),
            ("\u{202e}enaj", "\\u{202e}enaj"),
            ("a\u{2066}<b>\u{2069}", "a\\u{2066}&#60;b&#62;\\u{2069}"),
            ("a\u{200b}b\u{200d}\u{feff}", "a\\u{200b}b\\u{200d}\\u{feff}"),
            ("a\0\x1b[2J\u{85}\u{7f}", "a\\u{0}\\u{1b}[2J\\u{85}\\u{7f}"),
            ("a\nb", "a\\u{a}b"),
            ("\u{e0041}\u{3164}", "\\u{e0041}\\u{3164}"),
        ] {
            assert_eq!(shown(VisibleText, text), expected, "{text:?}");
        }
    }

    #[test]
    fn lines_stay_lines_and_fields_stay_as_they_are() {
        let text = "a\n\tb\r\u{202e}<";
        assert_eq!(shown(VisibleLines, text), "a\n\tb\\u{d}\\u{202e}&#60;");
        assert_eq!(shown(ExactText, text), "a\n\tb\r\u{202e}&#60;");
    }

    /// In each direction of the ranges of Unicode 16: the characters whose direction or width
    /// deceives are among them, and the letters, marks and signs beside them are not.
    #[test]
    fn the_neighbours_of_what_is_hidden_are_not() {
        for visible in [
            "\u{ac}", "\u{ae}", "\u{606}", "\u{200a}", "\u{2010}", "\u{2027}", "\u{202f}", "\u{205f}",
            "\u{2070}",
        ] {
            assert_eq!(shown(VisibleText, visible), visible);
        }
        for number in (0x200b..=0x200f).chain(0x2028..=0x202e).chain(0x2060..=0x206f) {
            let hidden = char::from_u32(number).unwrap();
            assert_eq!(
                shown(VisibleText, &hidden.to_string()),
                format!("\\u{{{number:x}}}")
            );
        }
    }
}
