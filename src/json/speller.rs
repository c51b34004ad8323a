//! The spelling of a value, made while its text is read: nothing is built in between.

use std::fmt;
use std::io::Write as _;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::LENGTH;

/// Up to here every whole number has an f64 of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Spells a value while it is read.
#[derive(Default)]
pub(super) struct Speller {
    spelling: Vec<u8>,
    /// Of the objects that are being read, the outermost first.
    entries: Vec<Entry>,
    /// To put an object's entries in order in.
    ordered: Vec<u8>,
}

/// Where an entry of an object is spelled.
struct Entry {
    key: Range<usize>,
    ends: usize,
}

impl Speller {
    /// The spelling of the value that this text is.
    pub(super) fn spell(text: &str) -> serde_json::Result<Vec<u8>> {
        let mut speller = Self { spelling: Vec::with_capacity(text.len()), ..Self::default() };
        let mut from = serde_json::Deserializer::from_str(text);
        speller.deserialize(&mut from)?;
        from.end()?;
        Ok(speller.spelling)
    }

    /// Seven bits of the count to a byte: most are one, and each is one to be hashed.
    fn text(&mut self, text: &str) {
        self.spelling.push(b'"');
        let mut count = text.len();
        while count > 0x7f {
            self.spelling.push(0x80 | count.to_le_bytes()[0]);
            count >>= 7;
        }
        self.spelling.push(count.to_le_bytes()[0]);
        self.spelling.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: &Number) {
        self.spelling.extend_from_slice(b"#\0");
        let start = self.spelling.len();
        // Writing to a Vec cannot fail.
        let _ = write!(self.spelling, "{number}");
        // No number is as long as 128 digits, so the count is one byte.
        self.spelling[start - 1] = (self.spelling.len() - start).to_le_bytes()[0];
    }

    /// Begin a list or an object. Gives where its items start.
    fn begin(&mut self, kind: u8) -> usize {
        self.spelling.push(kind);
        self.spelling.extend_from_slice(&[0; LENGTH]);
        self.spelling.len()
    }

    /// Now that all items from `start` on are spelled, their length is known.
    fn end<E: Error>(&mut self, start: usize) -> Result<(), E> {
        let length = u32::try_from(self.spelling.len() - start).map_err(E::custom)?;
        self.spelling[start - LENGTH..start].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Put what an object has in order: the entries from `first` on, which are spelled from `start` on.
    fn order(&mut self, first: usize, start: usize) {
        let Self { spelling, entries, ordered } = self;
        let entries = &mut entries[first..];
        let key = |entry: &Entry| &spelling[entry.key.clone()];
        if entries.is_sorted_by(|one, next| key(one) < key(next)) {
            return;
        }
        // The sort keeps what is equal in its order; so the last of it comes first, and is kept.
        entries.reverse();
        entries.sort_by(|one, other| key(one).cmp(key(other)));
        ordered.clear();
        for same in entries.chunk_by(|one, next| key(one) == key(next)) {
            ordered.extend_from_slice(&spelling[same[0].key.start..same[0].ends]);
        }
        spelling.truncate(start);
        spelling.extend_from_slice(ordered);
    }
}

impl<'de> DeserializeSeed<'de> for &mut Speller {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Speller {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.spelling.push(b'n');
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.spelling.push(if value { b't' } else { b'f' });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.number(&value.into());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.number(&value.into());
        Ok(())
    }

    /// A whole number is an integer, as RFC 8785 has it: 1.0 and 1e0 are 1.
    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        if value.fract() == 0.0 && value.abs() <= EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and within ±2^53")]
            return self.visit_i64(value as i64);
        }
        self.number(&Number::from_f64(value).ok_or_else(|| E::custom("no JSON number is infinite"))?);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.text(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let start = self.begin(b'[');
        while items.next_element_seed(&mut *self)?.is_some() {}
        self.end(start)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let (start, first) = (self.begin(b'{'), self.entries.len());
        loop {
            let at = self.spelling.len();
            if entries.next_key_seed(&mut *self)?.is_none() {
                break;
            }
            let key = at..self.spelling.len();
            entries.next_value_seed(&mut *self)?;
            self.entries.push(Entry { key, ends: self.spelling.len() });
        }
        self.order(first, start);
        self.entries.truncate(first);
        self.end(start)
    }
}
