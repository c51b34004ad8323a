//! Parses JSON text directly into its canonical form, without an intermediate tree.

use super::LENGTH_SIZE;
use super::number::Number;

/// Largest nesting depth of arrays and objects.
const MAX_DEPTH: usize = 128;

/// Parses JSON (RFC 8259) and writes its canonical form.
#[derive(Default)]
pub(super) struct Parser<'a> {
    /// The text that is not parsed yet.
    rest: &'a [u8],
    /// The canonical form of the text that is parsed.
    form: Vec<u8>,
    depth: usize,
    /// Entries of the objects that are being parsed, outermost object first.
    entries: Vec<Entry>,
    /// A buffer that is reused to avoid allocations.
    scratch: Vec<u8>,
}

/// Positions of an object's entry in the canonical form.
struct Entry {
    /// Start of the key.
    start: usize,
    /// Start of the value, which is the end of the key.
    value: usize,
    /// End of the value.
    end: usize,
}

impl<'a> Parser<'a> {
    /// The canonical form of this text. Returns `None` if it is not JSON or exceeds the limits of [`super::canonical`].
    pub(super) fn canonical(text: &'a str) -> Option<Vec<u8>> {
        let mut parser = Self { rest: text.as_bytes(), form: Vec::with_capacity(text.len()), ..Self::default() };
        parser.value()?;
        parser.peek().is_none().then_some(parser.form)
    }

    /// Skips white space and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        let blank = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.rest = &self.rest[blank..];
        self.rest.first().copied()
    }

    /// Skips white space, and then `byte` if it is next. Returns whether it was.
    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.rest = &self.rest[usize::from(found)..];
        found
    }

    fn value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string(),
            b'{' => self.object(),
            b'[' => self.array(),
            b'n' => self.literal(b"null"),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            _ => self.number(),
        }
    }

    fn literal(&mut self, literal: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(literal)?;
        self.form.push(literal[0]);
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let (number, rest) = Number::parse(self.rest)?;
        self.rest = rest;
        self.scratch.clear();
        number.write_canonical(&mut self.scratch)?;
        write_with_length(b'#', &self.scratch, &mut self.form);
        Some(())
    }

    fn array(&mut self) -> Option<()> {
        let start = self.begin_container(b'[')?;
        self.items(b']', Self::value)?;
        self.end_container(start)
    }

    fn object(&mut self) -> Option<()> {
        let (start, first) = (self.begin_container(b'{')?, self.entries.len());
        self.items(b'}', Self::entry)?;
        self.sort_entries(first, start);
        self.entries.truncate(first);
        self.end_container(start)
    }

    fn entry(&mut self) -> Option<()> {
        let start = self.form.len();
        self.peek().filter(|first| *first == b'"')?;
        self.string()?;
        let value = self.form.len();
        self.skip(b':').then_some(())?;
        self.value()?;
        self.entries.push(Entry { start, value, end: self.form.len() });
        Some(())
    }

    /// Parses the items of an array or an object with `item`, up to the byte `end`.
    fn items(&mut self, end: u8, item: impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        self.rest = &self.rest[1..];
        if self.skip(end) {
            return Some(());
        }
        loop {
            item(self)?;
            if !self.skip(b',') {
                return self.skip(end).then_some(());
            }
        }
    }

    /// Writes the kind and a placeholder for the length. Returns where the content starts.
    fn begin_container(&mut self, kind: u8) -> Option<usize> {
        self.depth += 1;
        self.form.push(kind);
        self.form.extend_from_slice(&[0; LENGTH_SIZE]);
        (self.depth <= MAX_DEPTH).then_some(self.form.len())
    }

    /// Writes the length of an array or an object whose content starts at `start`.
    fn end_container(&mut self, start: usize) -> Option<()> {
        self.depth -= 1;
        let length = u32::try_from(self.form.len() - start).ok()?;
        self.form[start - LENGTH_SIZE..start].copy_from_slice(&length.to_le_bytes());
        Some(())
    }

    /// Sorts the entries of an object by key, the last of equal keys first. Its entries start at the index `first`, its
    /// content at `start`.
    fn sort_entries(&mut self, first: usize, start: usize) {
        let Self { form, entries, scratch, .. } = self;
        let entries = &mut entries[first..];
        let key = |entry: &Entry| &form[entry.start..entry.value];
        if entries.is_sorted_by(|one, next| key(one) < key(next)) {
            return;
        }
        entries.sort_by(|one, other| key(one).cmp(key(other)).then(other.start.cmp(&one.start)));
        scratch.clear();
        for entry in entries {
            scratch.extend_from_slice(&form[entry.start..entry.end]);
        }
        form.truncate(start);
        form.extend_from_slice(scratch);
    }

    fn string(&mut self) -> Option<()> {
        self.rest = &self.rest[1..];
        let plain = self.plain();
        if self.rest.first() == Some(&b'"') {
            write_with_length(b'"', plain, &mut self.form);
        } else {
            self.scratch.clear();
            self.scratch.extend_from_slice(plain);
            while let Some(escape) = self.rest.strip_prefix(b"\\") {
                self.rest = unescape(escape, &mut self.scratch)?;
                let plain = self.plain();
                self.scratch.extend_from_slice(plain);
            }
            write_with_length(b'"', &self.scratch, &mut self.form);
        }
        self.rest = self.rest.strip_prefix(b"\"")?;
        Some(())
    }

    /// Takes the text before the next quote, backslash or control character.
    fn plain(&mut self) -> &'a [u8] {
        let is_special = |byte: &u8| *byte < b' ' || *byte == b'"' || *byte == b'\\';
        let (chunks, _) = self.rest.as_chunks::<16>();
        // No early exit within a chunk, so that it compiles to a few vector instructions.
        let plain = chunks.iter().take_while(|chunk| !chunk.iter().fold(false, |any, byte| any | is_special(byte)));
        let start = plain.count() * 16;
        let end = self.rest[start..].iter().position(is_special).map_or(self.rest.len(), |at| start + at);
        let (plain, rest) = self.rest.split_at(end);
        self.rest = rest;
        plain
    }
}

/// Writes a number or a string with its length. LEB128: seven bits for each byte, so most lengths have one byte.
fn write_with_length(kind: u8, content: &[u8], form: &mut Vec<u8>) {
    form.push(kind);
    let mut length = content.len();
    while length > 0x7f {
        form.push(0x80 | length.to_le_bytes()[0]);
        length >>= 7;
    }
    form.push(length.to_le_bytes()[0]);
    form.extend_from_slice(content);
}

/// Appends the character of an escape to `string`. `escape` starts after the backslash. Returns the rest of it.
fn unescape<'a>(escape: &'a [u8], string: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (kind, rest) = escape.split_first()?;
    string.push(match kind {
        b'"' | b'\\' | b'/' => *kind,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'u' => return unescape_unicode(rest, string),
        _ => return None,
    });
    Some(rest)
}

/// As [`unescape`], for `\u` and for two of them that are a surrogate pair. `digits` starts after the `u`.
fn unescape_unicode<'a>(digits: &'a [u8], string: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (unit, rest) = code_unit(digits)?;
    let next = rest.strip_prefix(br"\u").and_then(code_unit);
    let (code, rest) = match (unit, next) {
        (0xd800..=0xdbff, Some((low @ 0xdc00..=0xdfff, rest))) => {
            (0x1_0000 + ((unit - 0xd800) << 10 | (low - 0xdc00)), rest)
        }
        _ => (unit, rest),
    };
    if let Some(character) = char::from_u32(code) {
        string.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        // An unpaired surrogate, encoded as 1110xxxx 10xxxxxx 10xxxxxx.
        let [low, high, ..] = code.to_le_bytes();
        string.extend_from_slice(&[0xe0 | high >> 4, 0x80 | (high << 2 | low >> 6) & 0x3f, 0x80 | low & 0x3f]);
    }
    Some(rest)
}

/// The UTF-16 code unit of the four hexadecimal digits at the start of this text, and the rest.
fn code_unit(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>()?;
    let digit = |unit, digit: &u8| Some(unit << 4 | char::from(*digit).to_digit(16)?);
    Some((digits.iter().try_fold(0, digit)?, rest))
}
