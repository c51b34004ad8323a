//! JSON in a canonical form, in which equal values have equal bytes.

mod number;
mod parser;

use std::iter;

/// Bytes that hold the length of an array or an object.
const LENGTH: usize = 4;

/// A JSON value in its canonical form. The order of keys, white space, escapes and the notation of a number
/// do not count. Of a key that an object has twice, the last value counts.
///
/// The form is `n`, `t` or `f`; `#` for a number, `"` for a string, each with its length (LEB128) and its
/// bytes; `[` for an array and `{` for an object, each with its length and its items, or its keys and values,
/// the keys in order. So no two values have the same form, and values that are not looked for are skipped
/// by their length.
///
/// A string is UTF-8. A surrogate without its other half, which JSON's grammar allows as an escape, takes the
/// three bytes that UTF-8 would give it, and that no text has: <https://wtf-8.codeberg.page/>
#[derive(Clone, Debug)]
pub(crate) struct Json(Vec<u8>);

impl Json {
    /// The value of this text; `None` where it is not JSON, nested more than 128 deep, or has a number whose
    /// exponent is beyond 128 bits.
    pub(crate) fn read(text: &str) -> Option<Self> {
        parser::Parser::canonical(text).map(Self)
    }

    pub(crate) fn value(&self) -> Value<'_> {
        Value(&self.0)
    }
}

/// Whether this text looks like JSON, be it JSON or not: an object or an array begins it, after white space and a byte
/// order mark.
pub(crate) fn looks_like_json(text: &str) -> bool {
    text.trim_start_matches(|first: char| first.is_whitespace() || first == '\u{feff}').starts_with(['{', '['])
}

/// A value within a [`Json`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a>(&'a [u8]);

/// What a value is.
pub(crate) enum Kind<'a> {
    Null,
    Bool,
    /// In its canonical notation.
    Number(&'a str),
    Text(&'a str),
    /// A string that is not Unicode text, as it has half of a surrogate pair.
    NotUnicode,
    List,
    Object,
}

impl<'a> Value<'a> {
    pub(crate) const NULL: Self = Self(b"n");

    /// The canonical form of this value.
    pub(crate) fn canonical(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn kind(self) -> Kind<'a> {
        match split(self.0) {
            Some((b't' | b'f', ..)) => Kind::Bool,
            Some((b'#', digits, _)) => str::from_utf8(digits).map_or(Kind::NotUnicode, Kind::Number),
            Some((b'"', string, _)) => str::from_utf8(string).map_or(Kind::NotUnicode, Kind::Text),
            Some((b'[', ..)) => Kind::List,
            Some((b'{', ..)) => Kind::Object,
            _null => Kind::Null,
        }
    }

    /// The value at this JSON Pointer (RFC 6901).
    pub(crate) fn pointer(self, pointer: &str) -> Option<Self> {
        pointer.split('/').skip(1).try_fold(self, |value, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            match value.kind() {
                Kind::Object => value.get(&step),
                Kind::List if step == "0" || !step.starts_with(['0', '+']) => value.items().nth(step.parse().ok()?),
                Kind::List | Kind::Null | Kind::Bool | Kind::Number(_) | Kind::Text(_) | Kind::NotUnicode => None,
            }
        })
    }

    /// The value under this key of an object.
    pub(crate) fn get(self, key: &str) -> Option<Self> {
        self.entries().find_map(|(known, value)| (known.content() == key.as_bytes()).then_some(value))
    }

    /// The keys and values of an object; none where it is something else.
    pub(crate) fn entries(self) -> impl Iterator<Item = (Self, Self)> {
        pairs(if self.0.starts_with(b"{") { self.content() } else { &[] })
    }

    /// The items of an array; none where it is something else.
    pub(crate) fn items(self) -> impl Iterator<Item = Self> {
        values(if self.0.starts_with(b"[") { self.content() } else { &[] })
    }

    /// The text that it is, if it is one.
    pub(crate) fn text(self) -> Option<&'a str> {
        match self.kind() {
            Kind::Text(text) => Some(text),
            Kind::Null | Kind::Bool | Kind::Number(_) | Kind::NotUnicode | Kind::List | Kind::Object => None,
        }
    }

    /// Its bytes without its kind and its length.
    fn content(self) -> &'a [u8] {
        split(self.0).map_or(&[], |(_, content, _)| content)
    }
}

/// The values whose canonical forms follow one another here.
fn values(mut forms: &[u8]) -> impl Iterator<Item = Value<'_>> {
    iter::from_fn(move || {
        let (_, _, rest) = split(forms)?;
        let value = Value(&forms[..forms.len() - rest.len()]);
        forms = rest;
        Some(value)
    })
}

/// The same, two by two.
fn pairs(forms: &[u8]) -> impl Iterator<Item = (Value<'_>, Value<'_>)> {
    let mut values = values(forms);
    iter::from_fn(move || Some((values.next()?, values.next()?)))
}

/// The kind of the first value here, its content, and what comes after it.
fn split(forms: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = forms.split_first()?;
    let (length, rest) = match kind {
        b'#' | b'"' => split_length(rest),
        b'[' | b'{' => {
            let (length, rest) = rest.split_first_chunk::<LENGTH>()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _null_true_or_false => (0, rest),
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*kind, content, rest))
}

/// The length (LEB128) that these bytes begin with, and the rest.
fn split_length(bytes: &[u8]) -> (usize, &[u8]) {
    let digits = bytes.iter().position(|digit| *digit <= 0x7f).map_or(0, |last| last + 1);
    let (digits, rest) = bytes.split_at(digits);
    (digits.iter().rev().fold(0, |length, digit| length << 7 | usize::from(digit & 0x7f)), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Vec<u8> {
        Json::read(text).unwrap().value().canonical().to_vec()
    }

    #[test]
    fn every_spelling_of_a_value_has_the_same_one() {
        let spellings = [
            r#"{"a":1,"b":[true,null,"x/y"],"c":{"d":-2.5}}"#,
            "{ \"c\" : {\"d\":-25e-1}, \"b\":[true , null,\"\\u0078\\/y\"], \"a\" : 1.0 }",
            r#"{"a":7,"a":1,"b":[true,null,"x/y"],"c":{"d":1,"d":-2.5}}"#,
            r#"{"a":7,"b":0,"c":{"d":-2.50},"b":[true,null,"x\u002fy"],"a":1e0}"#,
        ];
        for one in spellings {
            assert_eq!(canonical(one), canonical(spellings[0]), "{one}");
        }
    }

    #[test]
    fn no_two_values_are_spelled_alike() {
        let values = [
            "null",
            "true",
            "false",
            "0",
            "1",
            "-1",
            "1.5",
            "9007199254740993",
            "9007199254740992.0",
            "1e300",
            "1e301",
            "\"\"",
            "\"1\"",
            "\"null\"",
            "[]",
            "[[]]",
            "[null]",
            "[1,2]",
            "[12]",
            "[\"1\",\"2\"]",
            "[\"12\"]",
            "{}",
            "{\"a\":1}",
            "{\"a\":\"1\"}",
            "[\"a\",1]",
            "{\"a\":{}}",
            "{\"\":{\"a\":1}}",
            "[[1],2]",
            "[[1,2]]",
            "[{},1]",
            "{\"a\":[],\"b\":1}",
            "{\"a\":[\"b\",1]}",
            "\"]\"",
            "\"\\u0001n\"",
        ];
        for (at, value) in values.iter().enumerate() {
            for other in &values[..at] {
                assert_ne!(canonical(value), canonical(other), "{value} and {other}");
            }
        }
    }

    #[test]
    fn objects_within_objects_are_put_in_order_each_for_itself() {
        let spellings = [
            r#"{"b":{"z":[{"d":1,"c":2}],"y":3},"a":{"x":{"f":4,"e":5}},"bb":6}"#,
            r#"{"a":{"x":{"e":5,"f":4}},"b":{"y":3,"z":[{"c":2,"d":1}]},"bb":6}"#,
            r#"{"bb":{"q":0,"p":0},"b":1,"a":{"x":{"f":4,"e":7,"e":5}},"bb":6,"b":{"z":[{"d":1,"c":2}],"y":3}}"#,
        ];
        for one in spellings {
            assert_eq!(canonical(one), canonical(spellings[0]), "{one}");
        }
    }

    #[test]
    fn a_value_is_found_however_long_its_neighbours_are() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 100_000] {
            let (long, digits) = ("x".repeat(length), "1".repeat(18));
            let json = Json::read(&format!(r#"{{"k{long}":"{long}","n":{digits},"o":[["{long}"],"found"]}}"#)).unwrap();
            assert_eq!(json.value().pointer("/o/1").and_then(Value::text), Some("found"));
            assert_eq!(json.value().get(&format!("k{long}")).and_then(Value::text), Some(&*long));
            assert!(matches!(json.value().get("n").map(Value::kind), Some(Kind::Number(found)) if found == digits));
        }
    }

    #[test]
    fn what_is_not_one_whole_value_is_not_json() {
        for text in ["", " ", "{", "[1,]", "1 2", "{\"a\":1}x", "nul", "01", "1.", "\"\\u+123\""] {
            assert!(Json::read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_pointer_finds_what_serde_json_finds() {
        let text = r#"{"a":{"b":[10,{"c":"x"}],"~/":1,"~1":5,"":2},"0":[3],"é":4}"#;
        let json = Json::read(text).unwrap();
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
