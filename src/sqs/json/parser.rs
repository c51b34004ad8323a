//! From JSON text to its canonical form, with nothing built in between.

use super::LENGTH;
use super::number::Number;

/// How deep arrays and objects may be nested.
const DEEPEST: usize = 128;

/// Reads JSON (RFC 8259), and writes its canonical form.
#[derive(Default)]
pub(super) struct Parser<'a> {
    /// The text that is not read yet.
    rest: &'a [u8],
    form: Vec<u8>,
    depth: usize,
    /// Of the objects that are being read, the outermost first.
    entries: Vec<Entry>,
    scratch: Vec<u8>,
}

/// Where an entry of an object is written.
struct Entry {
    start: usize,
    value: usize,
    end: usize,
}

impl<'a> Parser<'a> {
    /// The canonical form of this text; `None` where it is not JSON, or beyond the limits of [`super::Json`].
    pub(super) fn canonical(text: &'a str) -> Option<Vec<u8>> {
        let mut parser = Self { rest: text.as_bytes(), form: Vec::with_capacity(text.len()), ..Self::default() };
        parser.value()?;
        parser.peek().is_none().then_some(parser.form)
    }

    /// The first byte after white space.
    fn peek(&mut self) -> Option<u8> {
        let blank = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
        self.rest = &self.rest[blank..];
        self.rest.first().copied()
    }

    /// Skips white space and this byte, if it is there.
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
        let (number, rest) = Number::read(self.rest)?;
        self.rest = rest;
        self.scratch.clear();
        number.write(&mut self.scratch)?;
        counted(b'#', &self.scratch, &mut self.form);
        Some(())
    }

    fn array(&mut self) -> Option<()> {
        let start = self.begin(b'[')?;
        self.items(b']', Self::value)?;
        self.end(start)
    }

    fn object(&mut self) -> Option<()> {
        let (start, first) = (self.begin(b'{')?, self.entries.len());
        self.items(b'}', Self::entry)?;
        self.order(first, start);
        self.entries.truncate(first);
        self.end(start)
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

    /// The items of an array or an object, up to its end.
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

    fn begin(&mut self, kind: u8) -> Option<usize> {
        self.depth += 1;
        self.form.push(kind);
        self.form.extend_from_slice(&[0; LENGTH]);
        (self.depth <= DEEPEST).then_some(self.form.len())
    }

    /// Writes the length of an array or an object, whose content is written from `start` on.
    fn end(&mut self, start: usize) -> Option<()> {
        self.depth -= 1;
        let length = u32::try_from(self.form.len() - start).ok()?;
        self.form[start - LENGTH..start].copy_from_slice(&length.to_le_bytes());
        Some(())
    }

    /// Puts an object in order: the entries from `first` on, which are written from `start` on.
    fn order(&mut self, first: usize, start: usize) {
        let Self { form, entries, scratch, .. } = self;
        let entries = &mut entries[first..];
        let key = |entry: &Entry| &form[entry.start..entry.value];
        if entries.is_sorted_by(|one, next| key(one) < key(next)) {
            return;
        }
        // The sort keeps equal keys in their order, and the last of them counts.
        entries.sort_by(|one, other| key(one).cmp(key(other)));
        scratch.clear();
        for last in entries.chunk_by(|one, next| key(one) == key(next)).filter_map(<[Entry]>::last) {
            scratch.extend_from_slice(&form[last.start..last.end]);
        }
        form.truncate(start);
        form.extend_from_slice(scratch);
    }

    fn string(&mut self) -> Option<()> {
        self.rest = &self.rest[1..];
        let plain = self.plain();
        if self.rest.first() == Some(&b'"') {
            counted(b'"', plain, &mut self.form);
        } else {
            self.scratch.clear();
            self.scratch.extend_from_slice(plain);
            while let Some(escape) = self.rest.strip_prefix(b"\\") {
                self.rest = unescape(escape, &mut self.scratch)?;
                let plain = self.plain();
                self.scratch.extend_from_slice(plain);
            }
            counted(b'"', &self.scratch, &mut self.form);
        }
        self.rest = self.rest.strip_prefix(b"\"")?;
        Some(())
    }

    /// Takes what is before a quote, a backslash or a control character.
    fn plain(&mut self) -> &'a [u8] {
        let is_special = |byte: &u8| *byte < b' ' || *byte == b'"' || *byte == b'\\';
        let (chunks, _) = self.rest.as_chunks::<16>();
        // Without an early exit this is a few instructions for a chunk.
        let plain = chunks.iter().take_while(|chunk| !chunk.iter().fold(false, |any, byte| any | is_special(byte)));
        let start = plain.count() * 16;
        let end = self.rest[start..].iter().position(is_special).map_or(self.rest.len(), |at| start + at);
        let (plain, rest) = self.rest.split_at(end);
        self.rest = rest;
        plain
    }
}

/// Writes a number or a string. Seven bits of the length to a byte: most are one byte.
fn counted(kind: u8, content: &[u8], form: &mut Vec<u8>) {
    form.push(kind);
    let mut length = content.len();
    while length > 0x7f {
        form.push(0x80 | length.to_le_bytes()[0]);
        length >>= 7;
    }
    form.push(length.to_le_bytes()[0]);
    form.extend_from_slice(content);
}

/// Appends the character of an escape, whose backslash was read. Gives the rest.
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

/// The same for `\u`, and for two of them that are a surrogate pair.
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
        // Half of a pair, as 1110xxxx 10xxxxxx 10xxxxxx.
        let [low, high, ..] = code.to_le_bytes();
        string.extend_from_slice(&[0xe0 | high >> 4, 0x80 | (high << 2 | low >> 6) & 0x3f, 0x80 | low & 0x3f]);
    }
    Some(rest)
}

/// The UTF-16 code unit of these four hexadecimal digits, and the rest.
fn code_unit(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<4>()?;
    let digit = |unit, digit: &u8| Some(unit << 4 | char::from(*digit).to_digit(16)?);
    Some((digits.iter().try_fold(0, digit)?, rest))
}
