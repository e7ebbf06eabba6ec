//! Writes a value, with some of the values in it replaced by other text.
//!
//! Everything else is copied as it was read. Only lists and maps that contain a value to replace are visited, so
//! that a large or deep value costs no more than its text.

use super::patch::escape;
use super::{Document, Node, TapeToken};

/// Writes `root` with the values at `places` replaced; of values within others, only the outermost is. `with`
/// returns the new text, given the value and its JSON Pointer from `root`.
///
/// `places` are [positions](Node::position) in ascending order. A value whose key occurs again later in its map is
/// written as `null`, because only the last one counts.
pub fn replaced<'d>(
    root: Node<'d>,
    places: &[u32],
    with: impl FnMut(Node<'d>, &str) -> &'static str,
) -> String {
    let mut writer = Replacer {
        document: root.document(),
        superseded: superseded(root),
        places,
        with,
        pointer: String::new(),
        out: String::with_capacity(root.raw().len()),
        copied: 0,
        around: Vec::new(),
    };
    writer.write(root);
    writer.out
}

struct Replacer<'p, 'd, W> {
    document: &'d Document<'d>,
    /// The positions of values that are superseded by a later equal key and are still to be written, the last
    /// first.
    superseded: Vec<u32>,
    /// The places that are still to be written.
    places: &'p [u32],
    with: W,
    /// The JSON Pointer of the innermost open list or map.
    pointer: String,
    out: String,
    /// The offset up to which the text is written.
    copied: usize,
    /// The open lists and maps, the innermost last.
    around: Vec<OpenContainer>,
}

/// A list or map of which some contents are still to be written.
struct OpenContainer {
    /// The token of the next item or key.
    next: u32,
    end: u32,
    is_map: bool,
    /// The index of the next item.
    index: usize,
    /// The length of the pointer outside this list or map.
    outside: usize,
}

/// The positions of the values in `root` whose keys occur again later in their maps, the last first.
fn superseded(root: Node<'_>) -> Vec<u32> {
    let document = root.document();
    let positions = (root.position()..root.end()).rev();
    let is_superseded = |position: &u32| document.token(*position).is_some_and(TapeToken::superseded);
    positions.filter(is_superseded).map(|key| key + 1).collect()
}

impl<'d, W: FnMut(Node<'d>, &str) -> &'static str> Replacer<'_, 'd, W> {
    fn write(&mut self, root: Node<'d>) {
        let Some(whole) = self.document.token(root.position()) else {
            return self.out.push_str(root.raw());
        };
        self.copied = whole.start as usize;
        self.value(root.position());
        while let Some(opened) = self.around.last_mut() {
            let (next, end, outside) = (opened.next, opened.end, opened.outside);
            // Nothing is left to replace in it: the rest is copied with what follows.
            if next >= end || !self.is_any_before(end) {
                self.pointer.truncate(outside);
                self.around.pop();
                continue;
            }
            self.child();
        }
        self.copy(whole.end as usize);
    }

    /// Goes on to the next item or entry of the innermost list or map.
    fn child(&mut self) {
        let Some(opened) = self.around.last_mut() else {
            return;
        };
        let value = opened.next + u32::from(opened.is_map);
        let end = self.document.token(value).map_or(opened.end, |token| token.next);
        let (key, index) = (opened.next, opened.index);
        let is_map = opened.is_map;
        (opened.next, opened.index) = (end, index + 1);
        if !self.is_any_before(end) {
            return;
        }
        let outside = self.pointer.len();
        self.pointer.push('/');
        if is_map {
            let key = self.node(key).as_str().unwrap_or_default();
            self.pointer.push_str(&escape(&key));
        } else {
            self.pointer.push_str(&index.to_string());
        }
        let depth = self.around.len();
        self.value(value);
        match self.around.get_mut(depth) {
            Some(opened) => opened.outside = outside,
            None => self.pointer.truncate(outside),
        }
    }

    /// Replaces the value, or enters it if something in it is to be replaced.
    fn value(&mut self, position: u32) {
        let Some(token) = self.document.token(position) else {
            return;
        };
        let text = if self.superseded.last() == Some(&position) {
            "null"
        } else if self.places.first() == Some(&position) {
            let node = self.node(position);
            (self.with)(node, &self.pointer)
        } else {
            if self.is_any_before(token.next) {
                self.around.push(OpenContainer {
                    next: position + 1,
                    end: token.next,
                    is_map: token.kind() == super::Kind::Object,
                    index: 0,
                    outside: 0,
                });
            }
            return;
        };
        self.copy(token.start as usize);
        self.out.push_str(text);
        self.copied = token.end as usize;
        let within = self.places.partition_point(|place| *place < token.next);
        self.places = self.places.get(within..).unwrap_or_default();
        while self.superseded.pop_if(|place| *place < token.next).is_some() {}
    }

    /// Whether something before the token `end` is still to be replaced.
    fn is_any_before(&self, end: u32) -> bool {
        let next = [self.places.first(), self.superseded.last()];
        next.into_iter().flatten().any(|place| *place < end)
    }

    fn copy(&mut self, end: usize) {
        let text = self.document.text.get(self.copied..end);
        self.out.push_str(text.unwrap_or_default());
    }

    fn node(&self, position: u32) -> Node<'d> {
        Node {
            document: self.document,
            token: position,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with the values at these pointers replaced, and the arguments with which `with` was called.
    fn written(text: &str, pointers: &[&str]) -> (String, Vec<String>) {
        let document = Document::parse(text).unwrap();
        let mut places: Vec<u32> = pointers
            .iter()
            .map(|pointer| document.root().pointer(pointer).unwrap().position())
            .collect();
        places.sort_unstable();
        let mut found = Vec::new();
        let text = replaced(document.root(), &places, |node, pointer| {
            found.push(format!("{pointer} {}", node.raw()));
            "X"
        });
        (text, found)
    }

    #[test]
    fn the_outermost_are_replaced_and_the_rest_stays_as_it_was() {
        let text = r#" { "a" : [ 1, {"b/c":[2 , 3]}, "é" ] , "\u0061~":{}, "d":[[4]] } "#;
        for (pointers, expected, places) in [
            (
                vec![],
                r#"{ "a" : [ 1, {"b/c":[2 , 3]}, "é" ] , "\u0061~":{}, "d":[[4]] }"#,
                vec![],
            ),
            (
                vec!["/a/1/b~1c/1", "/a/2", "/d/0"],
                r#"{ "a" : [ 1, {"b/c":[2 , X]}, X ] , "\u0061~":{}, "d":[X] }"#,
                vec!["/a/1/b~1c/1 3", "/a/2 \"é\"", "/d/0 [4]"],
            ),
            (
                vec!["/a", "/a/1", "/a/1/b~1c/0", "/a~0"],
                r#"{ "a" : X , "\u0061~":X, "d":[[4]] }"#,
                vec![r#"/a [ 1, {"b/c":[2 , 3]}, "é" ]"#, "/a~0 {}"],
            ),
            (
                vec!["", "/d"],
                "X",
                vec![r#" { "a" : [ 1, {"b/c":[2 , 3]}, "é" ] , "\u0061~":{}, "d":[[4]] }"#],
            ),
        ] {
            let (text, found) = written(text, &pointers);
            assert_eq!(
                (text.as_str(), found),
                (expected, places.into_iter().map(str::to_owned).collect())
            );
        }
    }

    #[test]
    fn what_nobody_reads_is_not_written() {
        let (text, found) = written(
            r#"{"a":{"s":1},"b":[{"c":2,"c":3,"c":4}],"a":5}"#,
            &["/b/0/c", "/a"],
        );
        assert_eq!(text, r#"{"a":null,"b":[{"c":null,"c":null,"c":X}],"a":X}"#);
        assert_eq!(found, ["/b/0/c 4", "/a 5"]);
    }

    #[test]
    fn what_nests_deep_is_replaced_too() {
        let (open, close) = (r#"{"a":["#.repeat(4_000), "]}".repeat(4_000));
        let pointer = "/a/0".repeat(4_000);
        let (text, found) = written(&format!("{open}1{close}"), &[&pointer]);
        assert_eq!(text, format!("{open}X{close}"));
        assert_eq!(found, [format!("{pointer} 1")]);
    }
}
