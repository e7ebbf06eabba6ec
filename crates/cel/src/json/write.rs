//! JSON objects written field by field, in the order given.

use super::text::write_string;

/// An object that is being written.
///
/// Numbers and values that are JSON already are written as they are given; text is
/// escaped. It is the writer's task to give each key once.
#[derive(Debug)]
pub struct ObjectWriter<'o> {
    out: &'o mut String,
    is_empty: bool,
}

impl ObjectWriter<'_> {
    /// Appends an object with what `fields` writes into it.
    pub fn write(out: &mut String, fields: impl FnOnce(&mut ObjectWriter<'_>)) {
        out.push('{');
        fields(&mut ObjectWriter {
            out: &mut *out,
            is_empty: true,
        });
        out.push('}');
    }

    /// A key; its value is to be appended to what is given back.
    pub fn key(&mut self, key: &str) -> &mut String {
        if !self.is_empty {
            self.out.push(',');
        }
        self.is_empty = false;
        write_string(self.out, key);
        self.out.push(':');
        self.out
    }

    /// A text.
    pub fn text(&mut self, key: &str, text: &str) {
        write_string(self.key(key), text);
    }

    /// A text that is left out when it is empty, as Go's `omitempty` leaves it out.
    pub fn text_if_any(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &str, texts: &[impl AsRef<str>]) {
        self.list(key, texts, |out, text| write_string(out, text.as_ref()));
    }

    /// A list of texts that is left out when it is empty.
    pub fn texts_if_any(&mut self, key: &str, texts: &[impl AsRef<str>]) {
        if !texts.is_empty() {
            self.texts(key, texts);
        }
    }

    /// A list whose items `write` appends.
    pub fn list<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        write: impl FnMut(&mut String, T),
    ) {
        write_list(self.key(key), items, write);
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &str, value: bool) {
        self.json(key, if value { "true" } else { "false" });
    }

    /// A value that is JSON already.
    pub fn json(&mut self, key: &str, json: &str) {
        self.key(key).push_str(json);
    }

    /// An object with what `fields` writes into it.
    pub fn object(&mut self, key: &str, fields: impl FnOnce(&mut ObjectWriter<'_>)) {
        ObjectWriter::write(self.key(key), fields);
    }
}

/// Appends a list whose items `write` appends.
pub fn write_list<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push('[');
    for (position, item) in items.into_iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort_of_value_is_written_after_its_key() {
        let mut out = String::from("[");
        ObjectWriter::write(&mut out, |object| {
            object.text("a\"", "\n");
            object.text_if_any("left out", "");
            object.texts("b", &["c", "d"]);
            object.texts("e", &[""; 0]);
            object.texts_if_any("left out", &[""; 0]);
            object.flag("f", false);
            object.json("g", "1e3");
            object.object("h", |_| {});
            object.object("i", |object| object.text_if_any("j", "k"));
            object.list("l", [1, 2], |out, number| out.push_str(&number.to_string()));
        });
        let expected =
            r#"[{"a\"":"\n","b":["c","d"],"e":[],"f":false,"g":1e3,"h":{},"i":{"j":"k"},"l":[1,2]}"#;
        assert_eq!(out, expected);
    }
}
