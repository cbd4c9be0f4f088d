//! The working folder of a job as a zip file, in pieces that share the memory of the files they are made of.

use bridge_core::ids::SubmitToken;
use bytes::{BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};

/// A file of the working folder.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) content: Vec<Bytes>,
}

impl Entry {
    fn size(&self) -> usize {
        self.content.iter().map(Bytes::len).sum()
    }
}

/// A zip file and the name under which Ray keeps it.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) pieces: Vec<Bytes>,
    pub(super) size: usize,
}

impl Package {
    /// Packs the files. The same files of the same job are always the same package, byte for byte.
    pub(super) fn new(token: &SubmitToken, entries: &[Entry]) -> Option<Self> {
        let pieces = zip(entries)?;
        let size = pieces.iter().map(Bytes::len).sum();
        // Ray unpacks a name once a node. With the token in it, no job works in the folder of another that happens to
        // have the same script; with the content, a file that was replaced before a new try is not taken from a cache.
        let mut hash = Sha256::new();
        hash.update(token.as_str());
        for piece in &pieces {
            hash.update(piece);
        }
        let hash: Vec<String> = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Some(Self { name: format!("_ray_pkg_{}.zip", hash.concat()), pieces, size })
    }

    /// What a `runtime_env` calls it.
    pub(super) fn uri(&self) -> String {
        format!("gcs://{}", self.name)
    }

    /// The whole file in one piece.
    pub(super) fn whole(&self) -> Bytes {
        self.pieces.concat().into()
    }
}

/// 1 January 1980: a package does not depend on when it was made.
const DATE: u16 = 1 << 5 | 1;
const VERSION: u16 = 20;
const MADE_ON_UNIX: u16 = 3 << 8 | VERSION;
const NAME_IS_UTF8: u16 = 1 << 11;
/// A regular file that its owner may write and run, and others read and run.
const MODE: u32 = 0o100_755 << 16;

/// A zip file without compression; `None` if it would need the format's extension for large files.
fn zip(entries: &[Entry]) -> Option<Vec<Bytes>> {
    let mut pieces = Vec::new();
    let mut directory = BytesMut::new();
    let mut offset = 0_u32;
    for entry in entries {
        let size = u32::try_from(entry.size()).ok()?;
        let name_size = u16::try_from(entry.name.len()).ok()?;
        // What the file's own header and its entry in the directory have in common.
        let mut common = BytesMut::with_capacity(26);
        common.put_u16_le(VERSION);
        common.put_u16_le(NAME_IS_UTF8);
        common.put_u16_le(0); // stored
        common.put_u16_le(0); // midnight
        common.put_u16_le(DATE);
        common.put_u32_le(crc32(&entry.content));
        common.put_u32_le(size);
        common.put_u32_le(size);
        common.put_u16_le(name_size);
        common.put_u16_le(0); // nothing extra

        let mut header = BytesMut::with_capacity(30 + entry.name.len());
        header.put_slice(b"PK\x03\x04");
        header.put_slice(&common);
        header.put_slice(entry.name.as_bytes());

        directory.put_slice(b"PK\x01\x02");
        directory.put_u16_le(MADE_ON_UNIX);
        directory.put_slice(&common);
        directory.put_u16_le(0); // no comment
        directory.put_u16_le(0); // first disk
        directory.put_u16_le(0); // no text file
        directory.put_u32_le(MODE);
        directory.put_u32_le(offset);
        directory.put_slice(entry.name.as_bytes());

        offset = offset.checked_add(u32::try_from(header.len()).ok()?)?.checked_add(size)?;
        pieces.push(header.freeze());
        pieces.extend(entry.content.iter().cloned());
    }
    let count = u16::try_from(entries.len()).ok()?;
    let directory_size = u32::try_from(directory.len()).ok()?;
    directory.put_slice(b"PK\x05\x06");
    directory.put_u16_le(0); // this disk
    directory.put_u16_le(0); // the disk of the directory
    directory.put_u16_le(count);
    directory.put_u16_le(count);
    directory.put_u32_le(directory_size);
    directory.put_u32_le(offset);
    directory.put_u16_le(0); // no comment
    pieces.push(directory.freeze());
    Some(pieces)
}

fn crc32(pieces: &[Bytes]) -> u32 {
    let mut sum = u32::MAX;
    for byte in pieces.iter().flatten() {
        let index = (sum ^ u32::from(*byte)) & 0xff;
        sum = TABLE.get(index as usize).copied().unwrap_or_default() ^ (sum >> 8);
    }
    !sum
}

static TABLE: [u32; 256] = table();

#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a constant: a mistake does not compile")]
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, content: &[&'static str]) -> Entry {
        Entry {
            name: name.to_owned(),
            content: content.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect(),
        }
    }

    #[test]
    fn the_sum_is_the_one_everybody_uses() {
        assert_eq!(crc32(&[Bytes::from_static(b"1234"), Bytes::from_static(b"56789")]), 0xcbf4_3926);
        assert_eq!(crc32(&[]), 0);
    }

    #[test]
    fn a_package_is_of_one_job_and_one_content() {
        let (one, other) = (SubmitToken::derive("one", 1), SubmitToken::derive("one", 2));
        let files = [entry("script.py", &["print(1)"])];
        let name = |token, files: &[Entry]| Package::new(token, files).unwrap().name;
        assert_eq!(name(&one, &files), name(&one, &files));
        assert_ne!(name(&one, &files), name(&other, &files));
        assert_ne!(name(&one, &files), name(&one, &[entry("script.py", &["print(2)"])]));
        // In how many pieces a file arrived does not matter.
        assert_eq!(name(&one, &files), name(&one, &[entry("script.py", &["pri", "nt(1)"])]));
    }

    /// What unpacks packages on the cluster is Python.
    #[test]
    fn python_unpacks_it() {
        let files = [
            entry("script.py", &["print('ü')\n"]),
            entry("empty", &[]),
            entry("Eingabe für café №1.txt", &["two ", "pieces"]),
            entry("sub/folder/data.bin", &["\0\u{1}x"]),
        ];
        let package = Package::new(&SubmitToken::derive("zip", 1), &files).unwrap();
        assert_eq!(package.size, package.whole().len());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.zip"), package.whole()).unwrap();
        let program = "import zipfile; z = zipfile.ZipFile('a.zip'); assert z.testzip() is None; z.extractall('out')";
        let python = std::process::Command::new("python3").args(["-c", program]).current_dir(&folder).output().unwrap();
        assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
        for file in files {
            let seen = std::fs::read(folder.path().join("out").join(&file.name)).unwrap();
            assert_eq!(seen, file.content.concat(), "{}", file.name);
        }
    }
}
