//! The layer of a bundle: a tar archive of manifests, compressed with gzip.
//!
//! Little of tar is needed, and the other features are ways to escape from a folder: links,
//! devices, records with long names, sparse files. Therefore only regular files and folders in the
//! POSIX format (ustar) are read. Nothing is written to disk: the files are read from memory, and
//! their names are used only to say where an error is.
//!
//! It follows POSIX.1-2017, `pax`, "ustar Interchange Format".

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::manifest::BundleError;
use crate::config::files::is_manifest;

/// A file of a bundle: its path in the bundle, and its contents.
pub type BundleFile = (String, String);

/// The most bytes of a decompressed layer.
const MAX_ARCHIVE_BYTES: u64 = 64 << 20;

/// The most files and folders in a layer.
const MAX_ENTRIES: usize = 10_000;

/// The most bytes of a file's path.
const MAX_PATH_BYTES: usize = 255;

/// The size of headers, to a multiple of which contents are padded.
const BLOCK: usize = 512;

/// The byte ranges of a header's fields.
const NAME: (usize, usize) = (0, 100);
const SIZE: (usize, usize) = (124, 136);
const CHECKSUM: (usize, usize) = (148, 156);
const TYPE: (usize, usize) = (156, 157);
const MAGIC: (usize, usize) = (257, 263);
const PREFIX: (usize, usize) = (345, 500);

/// Returns the layer with these files. The same files give the same bytes.
///
/// # Errors
///
/// A path is not allowed in a bundle, or there are too many files or bytes.
pub(crate) fn pack(files: &[BundleFile]) -> Result<Vec<u8>, BundleError> {
    let failed = |error: io::Error| refused(error.to_string());
    let mut layer = GzEncoder::new(Vec::new(), Compression::best());
    let mut names = EntryNames::default();
    for (path, text) in files {
        let path = names.check_file(path)?;
        layer.write_all(&header(path, text.len())?).map_err(failed)?;
        layer.write_all(text.as_bytes()).map_err(failed)?;
        layer.write_all(&vec![0; padding(text.len())]).map_err(failed)?;
    }
    layer.write_all(&[0; 2 * BLOCK]).map_err(failed)?;
    let layer = layer.finish().map_err(failed)?;
    // Check that the layer can be read.
    unpack(&layer).map(|_| layer)
}

/// The files of a layer, in its order.
///
/// # Errors
///
/// It is not a tar archive compressed with gzip, or contains something that is not allowed in a
/// bundle.
pub(crate) fn unpack(layer: &[u8]) -> Result<Vec<BundleFile>, BundleError> {
    read(&decompress(layer)?)
}

/// The files of a decompressed archive.
fn read(archive: &[u8]) -> Result<Vec<BundleFile>, BundleError> {
    let (mut rest, mut files, mut names) = (archive, Vec::new(), EntryNames::default());
    loop {
        let (block, after) = rest
            .split_at_checked(BLOCK)
            .ok_or_else(|| refused("it is cut off: the end-of-archive marker is missing"))?;
        if block.iter().all(|byte| *byte == 0) {
            break;
        }
        let entry = ArchiveEntry::parse(block)?;
        let (content, after) = after
            .split_at_checked(entry.size)
            .ok_or_else(|| refused(format!("`{}` ends too early", entry.path)))?;
        rest = after.get(padding(entry.size)..).unwrap_or_default();
        if entry.is_folder {
            names.check(&entry.path)?;
            continue;
        }
        let path = names.check_file(&entry.path)?;
        let text = str::from_utf8(content).map_err(|_| refused(format!("`{path}` is not UTF-8")))?;
        files.push((path.to_owned(), text.to_owned()));
    }
    if rest.iter().any(|byte| *byte != 0) {
        return Err(refused("it has data after its end"));
    }
    Ok(files)
}

fn decompress(layer: &[u8]) -> Result<Vec<u8>, BundleError> {
    let mut archive = Vec::new();
    let mut decoder = GzDecoder::new(layer);
    let read = (&mut decoder)
        .take(MAX_ARCHIVE_BYTES + 1)
        .read_to_end(&mut archive);
    read.map_err(|error| refused(format!("it is not compressed by gzip: {error}")))?;
    if archive.len() as u64 > MAX_ARCHIVE_BYTES {
        return Err(refused(format!(
            "it has more than {MAX_ARCHIVE_BYTES} bytes once decompressed"
        )));
    }
    if !decoder.into_inner().is_empty() {
        return Err(refused("it has data after its end"));
    }
    Ok(archive)
}

/// The header of a regular file.
fn header(path: &str, size: usize) -> Result<[u8; BLOCK], BundleError> {
    let (prefix, name) = split(path).ok_or_else(|| refused(format!("the name `{path}` is too long")))?;
    let mut header = [0; BLOCK];
    let mut put = |(start, end): (usize, usize), text: &[u8]| {
        let field = header.get_mut(start..end).unwrap_or_default();
        field.iter_mut().zip(text).for_each(|(byte, new)| *byte = *new);
    };
    put(NAME, name.as_bytes());
    put((100, 108), b"0000644");
    put((108, 116), b"0000000");
    put((116, 124), b"0000000");
    put(SIZE, format!("{size:011o}").as_bytes());
    put((136, 148), b"00000000000");
    put(TYPE, b"0");
    put((257, 265), b"ustar\x0000");
    put(PREFIX, prefix.as_bytes());
    let sum = checksum(&header);
    let field = header.get_mut(CHECKSUM.0..CHECKSUM.1).unwrap_or_default();
    field
        .iter_mut()
        .zip(format!("{sum:06o}\0 ").as_bytes())
        .for_each(|(byte, new)| *byte = *new);
    Ok(header)
}

/// Splits `path` into the header fields for prefix and name.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= NAME.1 {
        return Some(("", path));
    }
    let fits = |(prefix, name): &(&str, &str)| prefix.len() <= PREFIX.1 - PREFIX.0 && name.len() <= NAME.1;
    let slashes = path.match_indices('/').map(|(at, _)| at);
    slashes
        .filter_map(|at| Some((path.get(..at)?, path.get(at + 1..)?)))
        .find(fits)
}

/// The number of bytes that pad `size` to whole blocks.
const fn padding(size: usize) -> usize {
    size.next_multiple_of(BLOCK) - size
}

/// The sum of a header's bytes, where those of the checksum count as spaces.
fn checksum(header: &[u8]) -> u64 {
    let is_checksum = |at: usize| (CHECKSUM.0..CHECKSUM.1).contains(&at);
    let bytes = header.iter().enumerate();
    bytes
        .map(|(at, byte)| u64::from(if is_checksum(at) { b' ' } else { *byte }))
        .sum()
}

/// For the fuzz target `bundle`: reads a layer, an archive with corrected checksums, or a manifest.
/// The files of an archive are packed and read again.
#[cfg(fuzzing)]
pub fn fuzz(input: &[u8]) {
    let (sort, rest) = input.split_first().unwrap_or((&0, &[]));
    let files = match sort % 3 {
        0 => unpack(rest),
        1 => read(&with_checksums(rest)),
        _ => {
            let _ = super::BundleManifest::parse_unchecked(rest);
            return;
        }
    };
    let Ok(files) = files else { return };
    let is_inside = |path: &str| path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    assert!(files.iter().all(|(path, _)| is_inside(path)), "{files:?}");
    let paths: BTreeSet<&String> = files.iter().map(|(path, _)| path).collect();
    assert_eq!(paths.len(), files.len());
    if let Ok(layer) = pack(&files) {
        assert_eq!(unpack(&layer).ok(), Some(files));
    }
}

#[cfg(fuzzing)]
fn with_checksums(archive: &[u8]) -> Vec<u8> {
    let mut archive = archive.to_vec();
    for block in archive.chunks_exact_mut(BLOCK) {
        let magic = block.get(MAGIC.0..MAGIC.1);
        if magic.is_some_and(|magic| magic == b"ustar\0") {
            let sum = checksum(block);
            let field = block.get_mut(CHECKSUM.0..CHECKSUM.1).unwrap_or_default();
            field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    archive
}

fn refused(reason: impl Into<String>) -> BundleError {
    BundleError::Layer(reason.into())
}

/// The relevant fields of a header.
struct ArchiveEntry {
    path: String,
    size: usize,
    is_folder: bool,
}

/// The paths of the entries so far.
#[derive(Default)]
struct EntryNames(BTreeSet<String>);

// === impl ArchiveEntry ===

impl ArchiveEntry {
    fn parse(header: &[u8]) -> Result<Self, BundleError> {
        let field = |(start, end): (usize, usize)| header.get(start..end).unwrap_or_default();
        let text = |place| {
            let field: &[u8] = field(place);
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            str::from_utf8(field.get(..end).unwrap_or_default())
                .map_err(|_| refused("a file name is not UTF-8"))
        };
        if octal(field(CHECKSUM)) != Some(checksum(header)) || field(MAGIC) != b"ustar\0" {
            return Err(refused(
                "it is not a tar in the POSIX form (`tar --format=ustar`)",
            ));
        }
        let (prefix, name) = (text(PREFIX)?, text(NAME)?);
        let slash = if prefix.is_empty() { "" } else { "/" };
        let path = format!("{prefix}{slash}{name}");
        let is_folder = match field(TYPE) {
            b"0" | b"\0" => false,
            b"5" => true,
            _ => {
                return Err(refused(format!(
                    "`{path}` is not a regular file: links, devices and extended headers are not allowed"
                )));
            }
        };
        let size = octal(field(SIZE)).and_then(|size| usize::try_from(size).ok());
        let size = size.ok_or_else(|| refused(format!("the size of `{path}` is not a number")))?;
        Ok(Self {
            path,
            size: if is_folder { 0 } else { size },
            is_folder,
        })
    }
}

/// Parses an octal number that ends with a space or NUL.
fn octal(field: &[u8]) -> Option<u64> {
    let text = str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    u64::from_str_radix(text, 8).ok().filter(|_| is_number)
}

// === impl EntryNames ===

impl EntryNames {
    /// Returns `path` without `./`. Rejects a path that leads out of the bundle or occurred before.
    fn check<'p>(&mut self, path: &'p str) -> Result<&'p str, BundleError> {
        let inner = path.strip_prefix("./").unwrap_or(path);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let is_plain =
            |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(char::is_control);
        // The folder itself, which `tar -C FOLDER .` adds.
        let is_top = inner.is_empty() || inner == ".";
        if path.len() > MAX_PATH_BYTES || path.starts_with('/') || !(is_top || inner.split('/').all(is_plain))
        {
            let shown: String = path.chars().take(MAX_PATH_BYTES).collect();
            return Err(refused(format!(
                "`{shown}` is not a path below the bundle's folder: no `..`, no `/` at the start, no name \
                 that begins with a dot"
            )));
        }
        if !self.0.insert(inner.to_owned()) {
            return Err(refused(format!("`{inner}` occurs twice")));
        }
        if self.0.len() > MAX_ENTRIES {
            return Err(refused(format!(
                "it has more than {MAX_ENTRIES} files and folders"
            )));
        }
        Ok(inner)
    }

    fn check_file<'p>(&mut self, path: &'p str) -> Result<&'p str, BundleError> {
        let path = self.check(path)?;
        if is_manifest(Path::new(path)) {
            return Ok(path);
        }
        Err(refused(format!(
            "`{path}` is not a manifest: their names end in `.yaml`, `.yml` or `.json`"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> BundleFile {
        (path.to_owned(), "kind: Role\n".to_owned())
    }

    /// A layer with one entry of this type and name.
    fn layer(path: &str, kind: u8, size: &str) -> Vec<u8> {
        let mut header = header("a.yaml", 0).unwrap();
        header[..NAME.1].fill(0);
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[TYPE.0] = kind;
        header[SIZE.0..SIZE.0 + size.len()].copy_from_slice(size.as_bytes());
        let sum = format!("{:06o}\0 ", checksum(&header));
        header[CHECKSUM.0..CHECKSUM.1].copy_from_slice(sum.as_bytes());
        compressed(&[&header[..], &[0; 2 * BLOCK]].concat())
    }

    fn compressed(archive: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(archive).unwrap();
        encoder.finish().unwrap()
    }

    fn refusal(layer: &[u8]) -> String {
        unpack(layer).unwrap_err().to_string()
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let long = format!("{}/{}.yaml", "a".repeat(120), "b".repeat(90));
        let files = [file("a.yaml"), file("b/c.json"), file(&long)];
        let layer = pack(&files).unwrap();
        assert_eq!(unpack(&layer).unwrap(), files);
        assert_eq!(pack(&files).unwrap(), layer);
        assert_eq!(unpack(&pack(&[]).unwrap()).unwrap(), []);
    }

    #[test]
    fn the_tar_of_everybody_is_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        for path in ["a.yaml", "b/c.yaml"] {
            std::fs::write(folder.path().join(path), "kind: Role\n").unwrap();
        }
        let tar = std::process::Command::new("tar")
            .args(["--format=ustar", "--sort=name", "-cf", "-", "-C"])
            .arg(folder.path())
            .arg(".")
            .output()
            .unwrap();
        let expected = [file("a.yaml"), file("b/c.yaml")];
        assert_eq!(unpack(&compressed(&tar.stdout)).unwrap(), expected);
    }

    #[test]
    fn nothing_leads_out_of_a_bundle() {
        for path in [
            "/etc/a.yaml",
            "../a.yaml",
            "a/../../b.yaml",
            "a/..",
            "a//b.yaml",
            ".hidden.yaml",
            "a/.b/c.yaml",
            "a\n.yaml",
            "..",
        ] {
            assert!(
                refusal(&layer(path, b'0', "")).contains("is not a path below"),
                "{path}"
            );
            assert!(pack(&[file(path)]).is_err(), "{path}");
        }
        // Hard and symbolic links, devices, pipes, long names, extended headers, sparse files.
        for kind in b"12346LKxgSV" {
            let refusal = refusal(&layer("a.yaml", *kind, ""));
            assert!(refusal.contains("is not a regular file"), "{kind}: {refusal}");
        }
    }

    #[test]
    fn what_is_cut_forged_or_too_large_is_refused() {
        for (layer, expected) in [
            (b"no gzip".to_vec(), "not compressed by gzip"),
            (compressed(b""), "it is cut off"),
            (compressed(&[b'x'; BLOCK]), "not a tar"),
            (layer("a.yaml", b'0', "00000002000"), "it is cut off"),
            (layer("a.yaml", b'0', "77777777777"), "ends too early"),
            (layer("a.yaml", b'0', "-0000000001"), "is not a number"),
            (layer("README.md", b'0', ""), "is not a manifest"),
            (
                compressed(&[[0; BLOCK], [b'x'; BLOCK]].concat()),
                "it has data after its end",
            ),
            (
                [pack(&[file("a.yaml")]).unwrap(), pack(&[]).unwrap()].concat(),
                "it has data after its end",
            ),
            (
                compressed(&vec![0; usize::try_from(MAX_ARCHIVE_BYTES).unwrap() + 1]),
                "once decompressed",
            ),
        ] {
            let refusal = refusal(&layer);
            assert!(refusal.contains(expected), "{expected}: {refusal}");
        }
        let twice = pack(&[file("a.yaml"), file("./a.yaml")]).unwrap_err();
        assert!(twice.to_string().contains("occurs twice"), "{twice}");
        let many: Vec<BundleFile> = (0..=MAX_ENTRIES).map(|i| file(&format!("{i}.yaml"))).collect();
        assert!(pack(&many).unwrap_err().to_string().contains("more than 10000"));
        let whole = pack(&[file("a.yaml")]).unwrap();
        for end in 0..whole.len() {
            assert!(unpack(&whole[..end]).is_err(), "{end}");
        }
    }
}
