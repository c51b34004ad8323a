//! Values within JSON in its canonical form.

use std::iter;

use crate::idempotency::json::{self, LENGTH_SIZE};

/// A JSON value in its [canonical form](crate::idempotency::json).
#[derive(Clone, Debug)]
pub(super) struct Json(Vec<u8>);

impl Json {
    /// Parses this text. Returns `None` if it is not JSON or exceeds the limits of [`json::canonical`].
    pub(super) fn parse(text: &str) -> Option<Self> {
        json::canonical(text).map(Self)
    }

    /// The whole value.
    pub(super) fn value(&self) -> Value<'_> {
        Value(&self.0)
    }
}

/// Whether this text starts like an object or an array, after white space and a byte order mark.
pub(super) fn looks_like_json(text: &str) -> bool {
    text.trim_start_matches(|first: char| first.is_whitespace() || first == '\u{feff}').starts_with(['{', '['])
}

/// A value within a [`Json`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a>(&'a [u8]);

/// The kind of a value.
pub(super) enum Kind<'a> {
    Null,
    Bool,
    /// In canonical notation.
    Number(&'a str),
    Text(&'a str),
    /// A string with an unpaired surrogate.
    NotUnicode,
    Array,
    Object,
}

impl<'a> Value<'a> {
    pub(super) const NULL: Self = Self(b"n");

    /// The canonical form of this value.
    pub(super) fn canonical(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn kind(self) -> Kind<'a> {
        match split(self.0) {
            Some((b't' | b'f', ..)) => Kind::Bool,
            Some((b'#', digits, _)) => str::from_utf8(digits).map_or(Kind::NotUnicode, Kind::Number),
            Some((b'"', string, _)) => str::from_utf8(string).map_or(Kind::NotUnicode, Kind::Text),
            Some((b'[', ..)) => Kind::Array,
            Some((b'{', ..)) => Kind::Object,
            _null => Kind::Null,
        }
    }

    /// The value at this JSON Pointer, which is empty or [one](is_pointer).
    pub(super) fn pointer(self, pointer: &str) -> Option<Self> {
        pointer.split('/').skip(1).try_fold(self, |value, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            match value.kind() {
                Kind::Object => value.get(&step),
                Kind::Array if step == "0" || !step.starts_with(['0', '+']) => value.items().nth(step.parse().ok()?),
                Kind::Array | Kind::Null | Kind::Bool | Kind::Number(_) | Kind::Text(_) | Kind::NotUnicode => None,
            }
        })
    }

    /// The value under this key of an object.
    pub(super) fn get(self, key: &str) -> Option<Self> {
        self.entries().find_map(|(known, value)| (known.content() == key.as_bytes()).then_some(value))
    }

    /// The keys and values of an object. Empty for other values.
    pub(super) fn entries(self) -> impl Iterator<Item = (Self, Self)> {
        let mut values = self.members(b'{');
        iter::from_fn(move || Some((values.next()?, values.next()?)))
    }

    /// Whether an object has a key more than once.
    pub(super) fn repeats_key(self) -> bool {
        // Equal keys are next to each other.
        let keys = || self.entries().map(|(key, _)| key.canonical());
        keys().zip(keys().skip(1)).any(|(key, next)| key == next)
    }

    /// The items of an array. Empty for other values.
    pub(super) fn items(self) -> impl Iterator<Item = Self> {
        self.members(b'[')
    }

    /// The values within this value, if it is of this kind.
    fn members(self, kind: u8) -> impl Iterator<Item = Self> {
        let mut forms = if self.0.starts_with(&[kind]) { self.content() } else { &[] };
        iter::from_fn(move || {
            let (_, _, rest) = split(forms)?;
            let value = Self(&forms[..forms.len() - rest.len()]);
            forms = rest;
            Some(value)
        })
    }

    /// The text of a string.
    pub(super) fn text(self) -> Option<&'a str> {
        match self.kind() {
            Kind::Text(text) => Some(text),
            Kind::Null | Kind::Bool | Kind::Number(_) | Kind::NotUnicode | Kind::Array | Kind::Object => None,
        }
    }

    /// Appends the canonical form of the value at each of these pointers to `forms`. A missing value counts as `null`.
    pub(super) fn append_at(self, pointers: &[impl AsRef<str>], forms: &mut Vec<u8>) {
        for pointer in pointers {
            forms.extend_from_slice(self.pointer(pointer.as_ref()).unwrap_or(Self::NULL).canonical());
        }
    }

    /// The bytes without the kind and the length.
    fn content(self) -> &'a [u8] {
        split(self.0).map_or(&[], |(_, content, _)| content)
    }
}

/// The kind and content of the first of these concatenated forms, and the rest.
fn split(forms: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = forms.split_first()?;
    let (length, rest) = match kind {
        b'#' | b'"' => split_length(rest),
        b'[' | b'{' => {
            let (length, rest) = rest.split_first_chunk::<LENGTH_SIZE>()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _null_true_or_false => (0, rest),
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*kind, content, rest))
}

/// The length (LEB128) at the start of these bytes, and the rest.
fn split_length(bytes: &[u8]) -> (usize, &[u8]) {
    let digits = bytes.iter().position(|digit| *digit <= 0x7f).map_or(0, |last| last + 1);
    let (digits, rest) = bytes.split_at(digits);
    (digits.iter().rev().fold(0, |length, digit| length << 7 | usize::from(digit & 0x7f)), rest)
}

/// Whether a text is a JSON Pointer that is not empty. It has no other escapes than `~0` and `~1`:
/// <https://www.rfc-editor.org/rfc/rfc6901#section-3>.
pub(super) fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Vec<u8> {
        Json::parse(text).unwrap().value().canonical().to_vec()
    }

    #[test]
    fn a_value_is_found_next_to_values_of_any_length() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 100_000] {
            let (long, digits) = ("x".repeat(length), "1".repeat(18));
            let json =
                Json::parse(&format!(r#"{{"k{long}":"{long}","n":{digits},"o":[["{long}"],"found"]}}"#)).unwrap();
            assert_eq!(json.value().pointer("/o/1").and_then(Value::text), Some("found"));
            assert_eq!(json.value().get(&format!("k{long}")).and_then(Value::text), Some(&*long));
            assert!(matches!(json.value().get("n").map(Value::kind), Some(Kind::Number(found)) if found == digits));
        }
    }

    #[test]
    fn of_several_values_with_one_key_a_pointer_finds_the_last() {
        for (text, last) in [(r#"{"a":"1","a":"2"}"#, "2"), (r#"{"a":"1","b":0,"a":"2","c":0,"a":"3"}"#, "3")] {
            let json = Json::parse(text).unwrap();
            assert_eq!(json.value().pointer("/a").and_then(Value::text), Some(last), "{text}");
        }
    }

    #[test]
    fn a_pointer_finds_what_serde_json_finds() {
        let text = r#"{"a":{"b":[10,{"c":"x"}],"~/":1,"~1":5,"":2},"0":[3],"é":4}"#;
        let json = Json::parse(text).unwrap();
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        for pointer in [
            "",
            "/",
            "/a",
            "/a/",
            "/a/b",
            "/a/b/0",
            "/a/b/00",
            "/a/b/+0",
            "/a/b/1/c",
            "/a/b/2",
            "/a/b/-",
            "/a/b/x",
            "/a/~0~1",
            "/a/~01",
            "/0/0",
            "/é",
            "/a/b/1/c/0",
            "/none",
        ] {
            let expected = value.pointer(pointer).map(|value| canonical(&value.to_string()));
            let found = json.value().pointer(pointer).map(|value| value.canonical().to_vec());
            assert_eq!(found, expected, "{pointer}");
        }
    }
}
