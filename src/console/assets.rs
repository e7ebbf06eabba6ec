//! The files that pages refer to: the style sheet, and scripts.
//!
//! `VENDORED.toml` lists those that others wrote, with version, licence, source and hash.

/// A file under `/assets/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    /// The last part of its path.
    pub name: &'static str,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// What it holds.
    pub content: &'static [u8],
}

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($name:literal, $content_type:expr) => {
        Asset {
            name: $name,
            content_type: $content_type,
            content: include_bytes!(concat!("assets/", $name)),
        }
    };
}

/// All of them.
pub const ASSETS: [Asset; 9] = [
    asset!("style.css", CSS),
    asset!("console.js", SCRIPT),
    asset!("live.js", SCRIPT),
    asset!("charts.js", SCRIPT),
    asset!("icon.svg", "image/svg+xml"),
    asset!("htmx.min.js", SCRIPT),
    asset!("htmx-sse.min.js", SCRIPT),
    asset!("uplot.min.js", SCRIPT),
    asset!("uplot.min.css", CSS),
];

/// The asset of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use openssl::sha::sha256;

    use super::*;

    const VENDORED: &str = include_str!("assets/VENDORED.toml");

    /// The tables of `VENDORED.toml`, which uses no more of TOML than `name = "text"`.
    fn entries() -> Vec<BTreeMap<&'static str, &'static str>> {
        let tables = VENDORED.split("[[file]]").skip(1);
        let entry = |table: &'static str| {
            let pairs = table.lines().filter_map(|line| line.split_once(" = "));
            pairs
                .map(|(name, value)| (name, value.trim_matches('"')))
                .collect()
        };
        tables.map(entry).collect()
    }

    #[test]
    fn what_others_wrote_is_as_they_published_it() {
        let entries = entries();
        assert_eq!(entries.len(), 4);
        for entry in &entries {
            let asset = find(entry["path"]).unwrap();
            let digest: String = sha256(asset.content)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(digest, entry["sha256"], "{}", asset.name);
            assert!(["MIT", "0BSD"].contains(&entry["licence"]), "{}", asset.name);
            assert!(entry["source"].contains(entry["version"]), "{}", asset.name);
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console/assets");
            let licence = fs::read_to_string(folder.join(entry["licence-path"])).unwrap();
            assert!(licence.contains("Permission"), "{licence}");
        }
        let own = ["style.css", "icon.svg", "console.js", "live.js", "charts.js"];
        for asset in ASSETS.iter().filter(|asset| !own.contains(&asset.name)) {
            assert!(
                entries.iter().any(|entry| entry["path"] == asset.name),
                "VENDORED.toml does not say where {} is from",
                asset.name
            );
        }
    }

    #[test]
    fn only_the_files_of_the_table_are_found() {
        assert!(find("style.css").is_some());
        for name in ["", "VENDORED.toml", "../assets/style.css", "STYLE.CSS"] {
            assert_eq!(find(name), None, "{name}");
        }
    }
}
