//! What is packed is read back, and what is damaged is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use openssl::sha::Sha256;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};
use serde_json::{Value, json};

use super::pages::{check_metadata, check_pages};
use super::read::{check_groups, extent};
use super::rows::{WaitingRows, cells};
use super::runs::RunReader;
use super::write::FileMaker;
use super::*;
use portcullis_cel::json::Document;
use portcullis_policy::model::Time;

/// A line of a decision log with all members, or only those of a plain one.
fn decision(number: u64, is_full: bool) -> Value {
    let mut line = json!({"time": format!("2026-11-21T10:15:02.{number:06}Z"), "revision": "8f2c41d09a7b",
        "cluster": "a/b", "caller": "api", "endpoint": "authorize", "uid": "", "user": format!("user-{}", number % 3),
        "attributes": {"verb": "get", "namespace": "shop", "resource": "pods"}, "decision": "noOpinion",
        "reason": "", "shadow": [], "durationSeconds": 0.0000011});
    if is_full {
        line["phase"] = json!("validate");
        line["attributes"]["dryRun"] = json!(true);
        line["attributes"]["extra"] = json!({"a": ["\"", "\u{e9}"]});
        line["attributes"]["fieldSelector"] = json!({"requirements": [{"key": "a", "operator": "Exists"}]});
        line["cause"] = json!({"kind": "RoleBinding", "namespace": "shop", "name": "b", "rule": 3});
        line["exceptions"] = json!([{"name": "e", "policy": "p"}]);
        line["truncated"] = json!(true);
    }
    line
}

fn pack(folder: &Path, kind: RowKind, lines: &[Value]) -> PackedFiles {
    let mut packer = Packer::new(kind, folder).unwrap();
    for line in lines {
        packer.add(line.to_string().as_bytes()).unwrap();
    }
    packer.finish().unwrap()
}

/// The lines of all files, sorted, each with how many rows have it.
fn read(folder: &Path, kind: RowKind, is_counted: bool) -> Vec<(String, u64)> {
    let mut lines = Vec::new();
    for path in column_files(folder).unwrap() {
        let file = ColumnFile::open(&path, kind).unwrap();
        let is_wanted = |column: &Column| !is_counted || !["time", "durationSeconds"].contains(&column.name);
        let is_wanted = |column: &Column| is_wanted(column) || column.name == "time";
        let mut each = |row: StoredRow<'_>| {
            assert!(row.first <= row.last);
            let line: Value = serde_json::from_str(row.line).unwrap();
            lines.push((line.to_string(), row.count));
            Ok::<(), ColumnFileError>(())
        };
        file.each_row(is_wanted, is_counted, &|_| {}, &mut each).unwrap();
    }
    lines.sort();
    lines
}

#[test]
fn what_is_packed_is_read_back_member_by_member() {
    let folder = tempfile::tempdir().unwrap();
    // Reasons that are too much for a dictionary, behind some that are not.
    let with_reason = |number: u64| {
        let mut line = decision(number, number.is_multiple_of(2));
        line["reason"] = match number {
            ..1000 => json!("short"),
            _ => json!(format!("{number:04} ").repeat(40)),
        };
        line
    };
    let lines: Vec<Value> = (0..10_000).map(with_reason).collect();
    let packed = pack(folder.path(), RowKind::Decision, &lines);
    assert_eq!((packed.rows, packed.files.len()), (10_000, 1));
    let below = packed.files[0]
        .strip_prefix(folder.path())
        .unwrap()
        .display()
        .to_string();
    assert!(
        below.starts_with("cluster=a%2Fb/date=2026-11-21/hour=10/decisions-"),
        "{below}"
    );
    let as_read = |line: &Value| {
        let mut line = line.clone();
        // Without zeros at the end.
        line["time"] = Time::parse(line["time"].as_str().unwrap())
            .unwrap()
            .to_string()
            .into();
        (line.to_string(), 1)
    };
    let mut expected: Vec<(String, u64)> = lines.iter().map(as_read).collect();
    expected.sort();
    assert_eq!(read(folder.path(), RowKind::Decision, false), expected);
}

#[test]
fn equal_rows_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<Value> = (0..4000).map(|number| decision(number, false)).collect();
    pack(folder.path(), RowKind::Decision, &lines);
    let read = read(folder.path(), RowKind::Decision, true);
    assert_eq!(read.iter().map(|(_, count)| count).sum::<u64>(), 4000);
    assert_eq!(read.len(), 3, "{read:?}");
}

/// Each file with its content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let named = |path: std::path::PathBuf| (path.display().to_string(), fs::read(path).unwrap());
    column_files(folder).unwrap().into_iter().map(named).collect()
}

#[test]
fn packing_twice_is_packing_once() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<Value> = (0..100).map(|number| decision(number, true)).collect();
    pack(folder.path(), RowKind::Decision, &lines);
    let once = files(folder.path());
    pack(folder.path(), RowKind::Decision, &lines);
    assert_eq!(files(folder.path()), once);
    pack(folder.path(), RowKind::Decision, &lines[..50]);
    assert_eq!(files(folder.path()).len(), once.len() + 1);
}

#[test]
fn what_is_not_finished_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut packer = Packer::new(RowKind::Decision, folder.path()).unwrap();
    // More clusters than are written at once, so that some are complete.
    for number in 0..200 {
        let mut line = decision(number, false);
        line["cluster"] = json!(format!("cluster-{number}"));
        packer.add(line.to_string().as_bytes()).unwrap();
    }
    drop(packer);
    for cluster in fs::read_dir(folder.path()).unwrap() {
        let hour = cluster.unwrap().path().join("date=2026-11-21/hour=10");
        assert_eq!(fs::read_dir(hour).unwrap().count(), 0);
    }
}

#[test]
fn a_line_that_has_no_place_is_refused_with_its_member() {
    let folder = tempfile::tempdir().unwrap();
    let changed = |name: &str, value: Value| {
        let mut line = decision(0, true);
        line[name] = value;
        line
    };
    let long = json!("x".repeat(65_537));
    for (line, expected) in [
        (changed("later", json!(1)), "the member `later` is not known"),
        (
            changed("cause", json!({"kind": "a", "rule": "b"})),
            "`cause.rule`",
        ),
        (
            changed("cause", json!({"other": "b"})),
            "`cause.other` is not known",
        ),
        (changed("time", json!("yesterday")), "`time` has a value"),
        (changed("decision", Value::Null), "`decision` is missing"),
        (changed("groups", json!([1])), "`groups` has a value"),
        (changed("user", long), "`user` is longer than 65536 bytes"),
        (
            changed("cluster", json!("x".repeat(201))),
            "the cluster's name is too long",
        ),
        (json!([]), "not an object"),
    ] {
        let mut packer = Packer::new(RowKind::Decision, folder.path()).unwrap();
        let error = packer.add(line.to_string().as_bytes()).unwrap_err();
        assert!(error.is_of_line(), "{error}");
        assert!(error.to_string().contains(expected), "{error}: {expected}");
    }
}

#[test]
fn a_recording_is_read_back_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let review = |number: u64| {
        json!({"cluster": "", "time": format!("2026-11-22T12:00:{number:02}Z"), "endpoint": "authorize",
            "decision": "allow", "redacted": ["/review/spec/a"], "review": {"spec": {"user": format!("u{}", 9 - number)}}})
    };
    let lines: Vec<Value> = (0..10).map(review).collect();
    let packed = pack(folder.path(), RowKind::Recording, &lines);
    let mut found = Vec::new();
    let file = ColumnFile::open(&packed.files[0], RowKind::Recording).unwrap();
    file.each_row(|_| true, false, &|_| {}, &mut |row| {
        found.push(serde_json::from_str::<Value>(row.line).unwrap());
        Ok::<(), ColumnFileError>(())
    })
    .unwrap();
    assert_eq!(found, lines);
    let error = ColumnFile::open(&packed.files[0], RowKind::Decision).unwrap_err();
    assert!(
        error.to_string().contains("it has reviews of a recording"),
        "{error}"
    );
}

/// The numbers of rows of the groups of a file.
fn groups(path: &Path) -> Vec<i64> {
    let bytes = bytes::Bytes::from(fs::read(path).unwrap());
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
    metadata
        .row_groups()
        .iter()
        .map(|group| group.num_rows())
        .collect()
}

#[test]
fn a_group_without_rows_is_not_written_and_takes_no_pages_to_read() {
    let folder = tempfile::tempdir().unwrap();
    // A row that is written at once, since no more may wait, and is the last.
    let line = json!({"cluster": "a", "time": "2026-11-22T12:00:00Z", "endpoint": "authorize",
        "decision": "allow", "review": {"name": "NAME"}});
    let line = line.to_string().replace("NAME", &"n".repeat(64 << 20));
    let mut packer = Packer::new(RowKind::Recording, folder.path()).unwrap();
    packer.add(line.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    assert_eq!(groups(&packed.files[0]), [1]);
    // Another program may write one.
    let files = FileMaker::new(RowKind::Decision, folder.path()).unwrap();
    let mut begun = files.begin(Path::new("cluster=a")).unwrap();
    let mut rows = WaitingRows::new(RowKind::Decision);
    let line = decision(0, true).to_string();
    rows.add(cells(RowKind::Decision, Document::parse(&line).unwrap().root()).unwrap());
    for rows in [rows, WaitingRows::new(RowKind::Decision)] {
        rows.write(&mut begun.0).unwrap();
    }
    let written = files
        .complete(Path::new("cluster=a"), begun, Sha256::new())
        .unwrap();
    let path = written.persist().unwrap();
    assert_eq!(groups(&path), [1, 0]);
    let (file, mut rows) = (ColumnFile::open(&path, RowKind::Decision).unwrap(), 0);
    let mut each = |row: StoredRow<'_>| {
        rows += row.count;
        Ok::<(), ColumnFileError>(())
    };
    file.each_row(|_| true, true, &|_| {}, &mut each).unwrap();
    assert_eq!(rows, 1);
}

/// Whatever is changed in a file, reading it ends, with an error or with other rows.
#[test]
fn a_damaged_file_is_refused_or_read_and_never_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<Value> = (0..200).map(|number| decision(number, number % 5 == 0)).collect();
    let packed = pack(folder.path(), RowKind::Decision, &lines);
    let (path, whole) = (&packed.files[0], fs::read(&packed.files[0]).unwrap());
    let mut refused = 0;
    for place in (0..whole.len()).step_by(29) {
        for byte in [0, 0x7f, 0xff] {
            let mut damaged = whole.clone();
            damaged[place] = byte;
            fs::write(path, &damaged).unwrap();
            let read = ColumnFile::open(path, RowKind::Decision).and_then(|file| {
                file.each_row(|_| true, true, &|_| {}, &mut |_| Ok::<(), ColumnFileError>(()))
            });
            refused += u32::from(read.is_err());
        }
    }
    assert!(refused > 30, "{refused}");
    for length in [0, 3, 11, whole.len() / 2, whole.len() - 1] {
        fs::write(path, &whole[..length]).unwrap();
        assert!(ColumnFile::open(path, RowKind::Decision).is_err(), "{length}");
    }
}

/// The header of a page, in Thrift's compact protocol: kind, size, compressed size, and the
/// number of values of a data page or dictionary.
fn page(bytes: u32, compressed: u32, part: u8, values: u32, encoding: u32) -> Vec<u8> {
    fn number(out: &mut Vec<u8>, value: u32) {
        let mut zigzag = u64::from(value) << 1;
        while zigzag > 0x7f {
            out.push((zigzag as u8 & 0x7f) | 0x80);
            zigzag >>= 7;
        }
        out.push(zigzag as u8);
    }
    let mut out = vec![0x15];
    number(&mut out, 0);
    out.push(0x15);
    number(&mut out, bytes);
    out.push(0x15);
    number(&mut out, compressed);
    // A structure some fields later, with two numbers.
    out.extend([((part - 3) << 4) | 12, 0x15]);
    number(&mut out, values);
    out.push(0x15);
    number(&mut out, encoding);
    out.extend([0, 0]);
    out
}

/// The header of a data page whose size is the field with this head.
fn with_size_as(head: &[u8], bytes: u32) -> Vec<u8> {
    let header = page(bytes, 10, 5, 1, 0);
    // Behind the kind of the page, a field of two bytes.
    assert_eq!(header[2], 0x15);
    [&header[..2], head, &header[3..]].concat()
}

/// Pages that are there already.
struct MadePages(std::vec::IntoIter<Page>);

impl Iterator for MadePages {
    type Item = parquet::errors::Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for MadePages {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
        Ok(self.0.next())
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        unreachable!()
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        unreachable!()
    }
}

/// A required column of texts.
fn text_column() -> ColumnDescPtr {
    let schema = parse_message_type("message m { required binary user (UTF8); }").unwrap();
    SchemaDescriptor::new(Arc::new(schema)).column(0)
}

#[test]
fn the_pages_of_a_batch_are_bounded_together_and_have_one_dictionary() {
    // A text of one byte in a page of 1,000.
    let data = |text: u8| Page::DataPage {
        buf: [&[1, 0, 0, 0, text][..], &[0; 995]].concat().into(),
        num_values: 1,
        encoding: Encoding::PLAIN,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let dictionary = || Page::DictionaryPage {
        buf: vec![1, 0, 0, 0, b'a'].into(),
        num_values: 1,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    };
    let read = |pages: Vec<Page>, mut room: usize| {
        let pages = Box::new(MadePages(pages.into_iter()));
        let read = RunReader::new(text_column(), pages).read(2, &mut room);
        read.map(|_| room).map_err(|error| error.to_string())
    };
    assert_eq!(read(vec![data(b'a'), data(b'b')], 2_500), Ok(500));
    let error = read(vec![data(b'a'), data(b'b')], 1_999).unwrap_err();
    assert!(error.contains("pages of few rows are too large"), "{error}");
    let twice = vec![dictionary(), data(b'a'), dictionary(), data(b'b')];
    let error = read(twice, 10_000).unwrap_err();
    assert!(error.contains("two dictionaries"), "{error}");
}

#[test]
fn columns_begin_where_the_library_reads_and_share_no_bytes() {
    let chunk = |dictionary: Option<i64>, bytes: i64| {
        ColumnChunkMetaData::builder(text_column())
            .set_dictionary_page_offset(dictionary)
            .set_data_page_offset(50)
            .set_total_compressed_size(bytes)
            .build()
            .unwrap()
    };
    assert_eq!(extent(&chunk(None, 7)).unwrap(), (50, 7));
    assert_eq!(extent(&chunk(Some(40), 7)).unwrap(), (40, 7));
    let error = extent(&chunk(Some(60), 7)).unwrap_err().to_string();
    assert!(error.contains("is behind its values"), "{error}");

    let schema = Arc::new(parse_message_type("message m { required binary user (UTF8); }").unwrap());
    let schema = Arc::new(SchemaDescriptor::new(schema));
    let checked = |groups: &[(i64, i64)]| {
        let groups = groups.iter().map(|(rows, bytes)| {
            RowGroupMetaData::builder(Arc::clone(&schema))
                .set_num_rows(*rows)
                .set_column_metadata(vec![chunk(None, *bytes)])
                .build()
                .unwrap()
        });
        let file = FileMetaData::new(2, 0, None, None, Arc::clone(&schema), None);
        let metadata = ParquetMetaData::new(file, groups.collect());
        check_groups(&metadata, 100).map_err(|error| error.to_string())
    };
    assert_eq!(checked(&[(1 << 27, 50), (1 << 27, 50)]), Ok(()));
    for (groups, expected) in [
        (&[(1, 50), (1, 51)][..], "larger than it is"),
        (
            &[(1, i64::MAX), (1, i64::MAX), (1, i64::MAX)],
            "larger than it is",
        ),
        (&[(1, -1)], "larger than it is"),
        (&[(1 << 27, 1), (1 << 27, 1), (1, 1)], "rows"),
    ] {
        let error = checked(groups).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_page_that_claims_more_than_it_can_have_takes_no_memory() {
    let most = 1 << 20;
    let checked = |header: Vec<u8>, body: usize| {
        let chunk = [header, vec![0; body]].concat();
        check_pages(&chunk, most)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert_eq!(checked(page(1000, 10, 5, 100, 0), 10), Ok(()));
    assert_eq!(checked(page(1000, 10, 7, 250, 0), 10), Ok(()));
    for (header, body, expected) in [
        (page(u32::MAX >> 1, 10, 5, 1, 0), 10, "a page is larger"),
        (page(1000, 10, 7, 251, 0), 10, "claims more values"),
        (page(1000, 10, 5, u32::MAX >> 1, 0), 10, "claims more values"),
        // Lengths and deltas of texts, for as many values as the page claims.
        (page(1000, 10, 5, 100, 6), 10, "is encoded as"),
        (page(1000, 10, 5, 100, 7), 10, "is encoded as"),
        (page(1000, 11, 5, 100, 0), 10, "cut or damaged"),
        (page(1000, 10, 5, 0, 0), 10, "has no values"),
        // A size that is declared as a 64-bit number, and a field whose number the library cuts to 2.
        (with_size_as(&[0x16], u32::MAX >> 1), 10, "cut or damaged"),
        (
            with_size_as(&[0x05, 0x84, 0x80, 0x08], u32::MAX >> 1),
            10,
            "cut or damaged",
        ),
    ] {
        let error = checked(header, body).unwrap_err();
        assert!(error.contains(expected), "{error}: {expected}");
    }
}

#[test]
fn metadata_is_bounded_by_its_entries_and_depth() {
    // A list of 70,000 flags in field 1.
    let long = [vec![0x19, 0xf1, 0xf0, 0xa2, 0x04], vec![1; 70_000], vec![0]].concat();
    let error = check_metadata(&long).unwrap_err().to_string();
    assert!(error.contains("more entries"), "{error}");
    // A text that claims 2^63 bytes, and structures within each other.
    let text = [vec![0x18], vec![0xff; 9], vec![0x01, 0]].concat();
    assert!(check_metadata(&text).is_err());
    assert!(check_metadata(&[0x1c; 1000]).is_err());
    assert!(check_metadata(&[0x15, 2, 0]).is_ok());
}
