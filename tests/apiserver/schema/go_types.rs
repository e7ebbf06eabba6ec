//! The Go types behind the definitions of an API server, as its own code has them.

use crate::binaries;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

/// The fields of each struct, by the name of its definition: `?*i32` for a pointer to an int32
/// that is not written while it is empty (`tests/oracle/objects.go`).
#[derive(Default, Deserialize)]
pub(super) struct GoTypes {
    types: BTreeMap<String, BTreeMap<String, String>>,
}

impl GoTypes {
    /// Those of a server, such as v1.37.1; `None` where the program that tells them is not built.
    pub(super) fn of(server: &str) -> Option<Self> {
        let mut command = Command::new(binaries::oracle(server)?);
        let piped = command.arg("fields").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"{}\n").unwrap();
        let output = child.wait_with_output().unwrap();
        Some(serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Adds the types and fields that an older server has besides.
    pub(super) fn join(&mut self, older: Self) {
        for (name, fields) in older.types {
            let own = self.types.entry(name).or_default();
            for (field, of) in fields {
                own.entry(field).or_insert(of);
            }
        }
    }

    /// The field of a definition; `any` of one that no object has.
    pub(super) fn field(&self, definition: &str, field: &str) -> &str {
        let fields = self.types.get(definition);
        fields.map_or("any", |fields| {
            let of = fields.get(field);
            of.unwrap_or_else(|| panic!("{definition} has no {field} in Go"))
        })
    }
}
