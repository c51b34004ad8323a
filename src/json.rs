//! A body as JSON, in one spelling for all that it may have, and the values in it.

mod speller;

use std::iter;

use speller::Speller;

/// Bytes of the length of a list or an object. Those of a number or a text are as few as can be (LEB128), as it
/// is known before it is spelled.
const LENGTH: usize = 4;

/// A JSON value in its one spelling. The order of keys, white space, escapes and the spelling of a number
/// do not count.
///
/// It is made while the text is read, and nothing else is: `n`, `t`, `f`; a number as `#`, a text as `"`, then
/// its length and its bytes; a list as `[`, an object as `{`, then its length and its items, or its keys and
/// values, the keys in order and each once. So no two values have the same spelling, and what is not looked
/// for is stepped over, however much is in it.
#[derive(Clone, Debug)]
pub(crate) struct Json(Vec<u8>);

impl Json {
    /// The value that this text is; `None` where it is not JSON.
    pub(crate) fn read(text: &str) -> Option<Self> {
        Speller::spell(text).ok().map(Self)
    }

    pub(crate) fn value(&self) -> Value<'_> {
        Value(&self.0)
    }
}

/// A value within a [`Json`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a>(&'a [u8]);

/// What a value is.
pub(crate) enum Kind<'a> {
    Null,
    Bool,
    Number(&'a str),
    Text(&'a str),
    List,
    Object,
}

impl<'a> Value<'a> {
    pub(crate) const NULL: Self = Self(b"n");

    /// The one spelling of this value.
    pub(crate) fn spelling(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn kind(self) -> Kind<'a> {
        match split(self.0) {
            Some((b't' | b'f', ..)) => Kind::Bool,
            Some((b'#', digits, _)) => Kind::Number(text(digits)),
            Some((b'"', letters, _)) => Kind::Text(text(letters)),
            Some((b'[', ..)) => Kind::List,
            Some((b'{', ..)) => Kind::Object,
            _null => Kind::Null,
        }
    }

    /// What is at this place (RFC 6901).
    pub(crate) fn pointer(self, pointer: &str) -> Option<Self> {
        pointer.split('/').skip(1).try_fold(self, |value, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            match value.kind() {
                Kind::Object => value.get(&step),
                Kind::List if step == "0" || !step.starts_with(['0', '+']) => value.items().nth(step.parse().ok()?),
                Kind::List | Kind::Null | Kind::Bool | Kind::Number(_) | Kind::Text(_) => None,
            }
        })
    }

    /// What an object has under this key.
    pub(crate) fn get(self, key: &str) -> Option<Self> {
        self.entries().find_map(|(known, value)| (known == key).then_some(value))
    }

    /// What is in an object; nothing, where it is none.
    pub(crate) fn entries(self) -> impl Iterator<Item = (&'a str, Self)> {
        let mut within = self.within(b'{');
        iter::from_fn(move || Some((next(&mut within)?.text()?, next(&mut within)?)))
    }

    /// What is in a list; nothing, where it is none.
    pub(crate) fn items(self) -> impl Iterator<Item = Self> {
        let mut within = self.within(b'[');
        iter::from_fn(move || next(&mut within))
    }

    /// The text that it is, if it is one.
    pub(crate) fn text(self) -> Option<&'a str> {
        match self.kind() {
            Kind::Text(text) => Some(text),
            Kind::Null | Kind::Bool | Kind::Number(_) | Kind::List | Kind::Object => None,
        }
    }

    /// What is in it, if it is of this kind.
    fn within(self, kind: u8) -> &'a [u8] {
        split(self.0).filter(|(found, ..)| *found == kind).map_or(&[], |(_, within, _)| within)
    }
}

/// The next value here; `None` at the end of what it is in.
fn next<'a>(within: &mut &'a [u8]) -> Option<Value<'a>> {
    let (_, _, rest) = split(within)?;
    let value = &within[..within.len() - rest.len()];
    *within = rest;
    Some(Value(value))
}

/// The kind of the first value here, what is within it, and what comes after it.
fn split(values: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = values.split_first()?;
    let (length, rest) = match kind {
        b'#' | b'"' => split_count(rest),
        b'[' | b'{' => {
            let (length, rest) = rest.split_first_chunk::<LENGTH>()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _null_true_or_false => (0, rest),
    };
    let (within, rest) = rest.split_at_checked(length)?;
    Some((*kind, within, rest))
}

/// The count that these bytes begin with, and the rest.
fn split_count(counted: &[u8]) -> (usize, &[u8]) {
    let digits = counted.iter().position(|digit| *digit <= 0x7f).map_or(0, |last| last + 1);
    let (digits, rest) = counted.split_at(digits);
    (digits.iter().rev().fold(0, |count, digit| count << 7 | usize::from(digit & 0x7f)), rest)
}

fn text(bytes: &[u8]) -> &str {
    // It was made of text.
    str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelling(text: &str) -> Vec<u8> {
        Json::read(text).unwrap().value().spelling().to_vec()
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
            assert_eq!(spelling(one), spelling(spellings[0]), "{one}");
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
                assert_ne!(spelling(value), spelling(other), "{value} and {other}");
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
            assert_eq!(spelling(one), spelling(spellings[0]), "{one}");
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
        for text in ["", " ", "{", "[1,]", "1 2", "{\"a\":1}x", "nul", "\"\\ud800\"", "1e999"] {
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
            let expected = value.pointer(pointer).map(|value| spelling(&value.to_string()));
            let found = json.value().pointer(pointer).map(|value| value.spelling().to_vec());
            assert_eq!(found, expected, "{pointer}");
        }
    }
}
