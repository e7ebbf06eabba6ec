//! Files of manifests: while they are read, and as long as they hold.

use portcullis_cel::Version;
use portcullis_policy::manifest::{Source, SourceObjects};

use crate::{ALLOCATOR, turn, worst};

/// Each of the worst texts as a parameter, as JSON and as YAML.
fn parameters() -> Vec<(&'static str, Source)> {
    let before = r#"{"apiVersion": "example.com/v1", "kind": "Limits", "metadata": {"name": "l"}, "x": "#;
    let texts = worst().into_iter().flat_map(|(name, text)| {
        // YAML knows anchors and tags besides.
        let yaml = format!("# YAML\n{before}{text}}}\n");
        [(name, format!("{before}{text}}}")), (name, yaml)]
    });
    let source = |(name, text)| {
        let source = Source {
            file: "f.yaml".to_owned(),
            text,
            cluster: None,
        };
        (name, source)
    };
    texts.map(source).collect()
}

#[test]
fn a_parameter_takes_a_multiple_of_its_text_and_is_kept_in_few_bytes_a_byte() {
    let _turn = turn();
    for (name, source) in parameters() {
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let objects = SourceObjects::read(&source, Version::NEWEST, None);
        let a_byte = |bytes: usize| (bytes - before) as f64 / source.text.len() as f64;
        let (taken, kept) = (a_byte(ALLOCATOR.peak_usage()), a_byte(ALLOCATOR.current_usage()));
        println!("manifest, {name}: {taken:.1} bytes a byte, kept {kept:.1}");
        assert!(
            taken <= 150.0 && kept <= 15.0,
            "{name}: {taken:.1}, kept {kept:.1}"
        );
        drop(objects);
    }
}
