//! Opens logs and reads them in blocks of whole lines.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use crate::failure::Failure;
use crate::files::STDIN;

/// Bytes of a block, and of the longest line. A longer line is skipped.
pub(in crate::simulate) const BLOCK_BYTES: usize = 1 << 20;
const GZIP: [u8; 2] = [0x1F, 0x8B];
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// A log that is being read.
pub(in crate::simulate) struct Input {
    name: String,
    reader: Box<dyn Read + Send>,
    /// What is left of the last block: the beginning of a line.
    rest: Vec<u8>,
    /// Whether the beginning of the current line was thrown away because it is too long.
    is_in_long_line: bool,
    is_at_end: bool,
}

/// Whole lines, or what was found instead.
#[derive(Debug)]
pub(in crate::simulate) enum Block {
    /// Lines, each with its line break; the last line of a file may lack it.
    Lines(Vec<u8>),
    /// A line is longer than a block; it was skipped.
    LongLine,
    /// The log ends before its end: a compressed file that was cut, or a failing disk.
    Truncated(io::Error),
    /// The end.
    End,
}

/// A file whose bytes are counted, for the progress bar.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Input {
    /// Opens a log, or standard input for `-`. Compression is recognised by its first bytes.
    pub(in crate::simulate) fn open(path: &Path, progress: &Arc<AtomicU64>) -> Result<Input, Failure> {
        let is_stdin = path.as_os_str() == STDIN;
        let name = if is_stdin { "stdin".to_owned() } else { path.to_string_lossy().into_owned() };
        let source: Box<dyn Read + Send> = if is_stdin {
            Box::new(io::stdin())
        } else {
            let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
                true => Err(io::Error::from(io::ErrorKind::IsADirectory)),
                false => Ok(file),
            });
            let file = file.map_err(|error| cannot_open(&name, &error))?;
            Box::new(Counted { file, read: Arc::clone(progress) })
        };
        Input::new(name.clone(), source).map_err(|error| cannot_open(&name, &error))
    }

    /// Reads from any source.
    pub(in crate::simulate) fn new(name: String, mut source: Box<dyn Read + Send>) -> io::Result<Input> {
        let mut start = Vec::new();
        (&mut source).take(ZSTD.len() as u64).read_to_end(&mut start)?;
        let is_gzip = start.starts_with(&GZIP);
        let is_zstd = start == ZSTD;
        let whole = io::Cursor::new(start).chain(source);
        let reader: Box<dyn Read + Send> = if is_gzip {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole)))
        } else if is_zstd {
            Box::new(zstd::Decoder::new(whole)?)
        } else {
            Box::new(whole)
        };
        Ok(Input { name, reader, rest: Vec::new(), is_in_long_line: false, is_at_end: false })
    }

    pub(in crate::simulate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the next whole lines.
    pub(in crate::simulate) fn next_block(&mut self) -> Block {
        if self.is_at_end {
            return Block::End;
        }
        loop {
            let mut block = std::mem::take(&mut self.rest);
            let start = block.len();
            block.resize(BLOCK_BYTES, 0);
            let (filled, error) = fill(&mut self.reader, &mut block[start..]);
            block.truncate(start + filled);
            if let Some(error) = error {
                // The whole lines before the fault are good.
                self.is_at_end = true;
                let end = memchr::memrchr(b'\n', &block).map_or(0, |at| at + 1);
                block.truncate(end);
                self.rest = Vec::new();
                return if block.is_empty() { Block::Truncated(error) } else { self.ending(block, error) };
            }
            self.is_at_end = start + filled < BLOCK_BYTES;
            if self.is_in_long_line {
                match memchr::memchr(b'\n', &block) {
                    Some(end) => {
                        block.drain(..=end);
                        self.is_in_long_line = false;
                    }
                    None if self.is_at_end => return Block::End,
                    None => continue,
                }
            }
            if self.is_at_end {
                return if block.is_empty() { Block::End } else { Block::Lines(block) };
            }
            match memchr::memrchr(b'\n', &block) {
                Some(end) => {
                    self.rest = block.split_off(end + 1);
                    return Block::Lines(block);
                }
                None => {
                    self.is_in_long_line = true;
                    return Block::LongLine;
                }
            }
        }
    }

    /// Returns the last whole lines before a fault, and keeps the fault for the next call.
    fn ending(&mut self, block: Vec<u8>, error: io::Error) -> Block {
        self.is_at_end = false;
        self.reader = Box::new(Failing(Some(error)));
        Block::Lines(block)
    }
}

/// A source that only returns its error.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Fills the buffer as far as the source has bytes. Returns their number, and an error that ended it.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}

fn cannot_open(name: &str, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "check the path; relative paths start in the current directory",
        io::ErrorKind::IsADirectory => "name the logs in it, like logs/*.gz",
        _ => "make it readable for you, or pass its text on standard input as `-`",
    };
    Failure::new(format!("cannot read {name}: {error}"), hint)
}

/// The size of all files together, for the progress bar. `None` if standard input is among them.
pub(in crate::simulate) fn total_bytes(paths: &[PathBuf]) -> Option<u64> {
    let size = |path: &PathBuf| match path.as_os_str() == STDIN {
        true => None,
        false => Some(std::fs::metadata(path).map_or(0, |metadata| metadata.len())),
    };
    paths.iter().map(size).sum()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines_of(bytes: Vec<u8>) -> (Vec<u8>, usize, Option<String>) {
        let mut input = Input::new("log".to_owned(), Box::new(io::Cursor::new(bytes))).expect("it opens");
        let (mut all, mut long, mut error) = (Vec::new(), 0, None);
        loop {
            match input.next_block() {
                Block::Lines(lines) => all.extend(lines),
                Block::LongLine => long += 1,
                Block::Truncated(why) => error = Some(why.to_string()),
                Block::End => return (all, long, error),
            }
        }
    }

    fn text() -> Vec<u8> {
        (0..200_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect()
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text).and_then(|()| packed.finish()).expect("it packs")
    }

    #[test]
    fn plain_gzip_and_zstd_give_the_same_lines() {
        let text = text();
        let members: Vec<u8> = text.chunks(700_000).flat_map(gzip).collect();
        let frames: Vec<u8> =
            text.chunks(700_000).flat_map(|part| zstd::encode_all(part, 1).expect("it packs")).collect();
        for packed in [text.clone(), members, frames] {
            assert_eq!(lines_of(packed), (text.clone(), 0, None));
        }
        assert_eq!(lines_of(Vec::new()), (Vec::new(), 0, None));
    }

    #[test]
    fn a_cut_file_gives_the_whole_lines_before_the_cut() {
        let text = text();
        for packed in [gzip(&text), zstd::encode_all(&*text, 1).expect("it packs")] {
            let (lines, long, error) = lines_of(packed[..packed.len() / 2].to_vec());
            assert!(error.is_some() && long == 0);
            assert!(text.starts_with(&lines) && lines.ends_with(b"\n") && lines.len() > 1_000);
        }
    }

    #[test]
    fn a_line_longer_than_a_block_is_skipped_once() {
        let mut text = b"first\n".to_vec();
        text.extend(vec![b'x'; 3 * BLOCK_BYTES]);
        text.extend(b"\nlast");
        assert_eq!(lines_of(text), (b"first\nlast".to_vec(), 1, None));
        assert_eq!(lines_of(vec![b'x'; 2 * BLOCK_BYTES]), (Vec::new(), 1, None));
    }
}
