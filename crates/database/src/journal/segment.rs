//! Segment files: a header with the writer and the first sequence number, then frames of length, checksum and payload.

use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher24;

use super::codec;
use crate::ledger::{Id, Record};

const MAGIC: &[u8; 8] = b"TGJRNL01";
pub(super) const HEADER_LEN: u64 = 32;
const FRAME_HEAD: usize = 12;
/// Longest payload. A length above it is not a length that we wrote.
const PAYLOAD_MAX: usize = 64 * 1024;
const EXTENSION: &str = "journal";

/// The place of one segment: its writer, the order of its creation, and its file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SegmentName {
    pub(super) writer: Id,
    pub(super) number: u32,
    pub(super) path: PathBuf,
}

impl SegmentName {
    pub(super) fn new(folder: &Path, writer: Id, number: u32) -> SegmentName {
        SegmentName { writer, number, path: folder.join(format!("{writer}-{number:08}.{EXTENSION}")) }
    }

    /// Returns the segments in a folder, ordered by writer and number. Other files are left alone.
    pub(super) fn list(folder: &Path) -> io::Result<Vec<SegmentName>> {
        let mut found = Vec::new();
        for file in std::fs::read_dir(folder)? {
            let path = file?.path();
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            let parsed = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| {
                let (writer, number) = stem.split_once('-')?;
                Some((Id::from_hex(writer)?, number.parse().ok()?))
            });
            if let Some((writer, number)) = parsed {
                found.push(SegmentName { writer, number, path });
            }
        }
        found.sort();
        Ok(found)
    }
}

/// Creates the file of a segment with its header.
pub(super) fn create(name: &SegmentName, first_seq: i64) -> io::Result<File> {
    let mut file = OpenOptions::new().create_new(true).append(true).open(&name.path)?;
    let mut header = Vec::with_capacity(HEADER_LEN as usize);
    header.extend(MAGIC);
    header.extend(name.writer.0);
    header.extend(first_seq.to_le_bytes());
    file.write_all(&header)?;
    Ok(file)
}

/// Appends the frame of a record.
pub(super) fn frame(out: &mut Vec<u8>, seq: i64, record: &Record) {
    let start = out.len();
    out.extend([0; FRAME_HEAD]);
    codec::encode(out, seq, record);
    let payload = &out[start + FRAME_HEAD..];
    let (len, sum) = (payload.len() as u32, checksum(payload));
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    out[start + 4..start + FRAME_HEAD].copy_from_slice(&sum.to_le_bytes());
}

/// Finds torn writes and flipped bits. It is no protection against people: the chain in the database is.
fn checksum(payload: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(payload);
    hasher.finish()
}

/// One frame that was read.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Frame {
    pub(crate) seq: i64,
    pub(crate) record: Record,
    /// Length in the file.
    pub(crate) bytes: u64,
}

/// Reads the first frame of `bytes`. `None` if it is incomplete or damaged.
fn parse(bytes: &[u8]) -> Option<Frame> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let sum = u64::from_le_bytes(bytes.get(4..FRAME_HEAD)?.try_into().ok()?);
    let payload = bytes.get(FRAME_HEAD..FRAME_HEAD + len).filter(|_| len <= PAYLOAD_MAX)?;
    if checksum(payload) != sum {
        return None;
    }
    let (seq, record) = codec::decode(payload).ok()?;
    Some(Frame { seq, record, bytes: (FRAME_HEAD + len) as u64 })
}

/// Reads complete frames from an offset, at most `max`. Stops at the first incomplete or damaged one.
pub(super) fn read(path: &Path, offset: u64, max: usize) -> io::Result<Vec<Frame>> {
    // A batch of the usual size fits in the first read.
    let mut wanted = (max * 256).max(2 * PAYLOAD_MAX) as u64;
    loop {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset.max(HEADER_LEN)))?;
        let mut bytes = Vec::new();
        file.take(wanted).read_to_end(&mut bytes)?;
        let mut frames = Vec::new();
        let mut rest = bytes.as_slice();
        while frames.len() < max {
            let Some(frame) = parse(rest) else { break };
            rest = &rest[frame.bytes as usize..];
            frames.push(frame);
        }
        if frames.is_empty() && bytes.len() as u64 == wanted && wanted < 4 * PAYLOAD_MAX as u64 {
            wanted *= 2;
            continue;
        }
        return Ok(frames);
    }
}

/// Returns the first sequence number of a segment. `None` while its header is being written.
pub(super) fn first_seq(path: &Path) -> io::Result<Option<i64>> {
    let mut header = Vec::new();
    File::open(path)?.take(HEADER_LEN).read_to_end(&mut header)?;
    let Some(header) = header.get(..HEADER_LEN as usize).filter(|header| header.starts_with(MAGIC)) else {
        return Ok(None);
    };
    Ok(Some(i64::from_le_bytes(header[24..32].try_into().map_err(io::Error::other)?)))
}

/// What a segment holds after a crash.
pub(super) struct Contents {
    pub(super) first_seq: i64,
    pub(super) last_seq: i64,
    /// Length up to the end of the last complete frame.
    pub(super) valid_len: u64,
    /// Length of the file.
    pub(super) len: u64,
    /// Offset of a complete frame after damaged bytes: the file is damaged in the middle, not torn at its end.
    pub(super) frame_after_damage: Option<u64>,
}

/// Reads a whole segment. `None` if not even its header is complete.
pub(super) fn inspect(path: &Path) -> io::Result<Option<Contents>> {
    let bytes = std::fs::read(path)?;
    let header = bytes.get(..HEADER_LEN as usize).filter(|header| header.starts_with(MAGIC));
    let Some(header) = header else { return Ok(None) };
    let first_seq = i64::from_le_bytes(header[24..32].try_into().map_err(io::Error::other)?);
    let (mut at, mut next) = (HEADER_LEN as usize, first_seq);
    while let Some(frame) = parse(&bytes[at..]).filter(|frame| frame.seq == next) {
        at += frame.bytes as usize;
        next += 1;
    }
    let follows = |offset: &usize| parse(&bytes[*offset..]).is_some_and(|frame| frame.seq >= next);
    let frame_after_damage = (at + 1..bytes.len()).find(follows).map(|offset| offset as u64);
    Ok(Some(Contents {
        first_seq,
        last_seq: next - 1,
        valid_len: at as u64,
        len: bytes.len() as u64,
        frame_after_damage,
    }))
}
