//! A body as JSON, borrowed from its text, and in one spelling for all that it may have.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// Up to here every whole number has an f64 of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A JSON value. It copies no text but that which is written with escapes.
#[derive(Debug, Default)]
pub(crate) enum Json<'a> {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Json<'a>>),
    /// In the order of the keys, each once: of a key that is there twice the last counts.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// What is at this place (RFC 6901).
    pub(crate) fn pointer(&self, pointer: &str) -> Option<&Self> {
        pointer.split('/').skip(1).try_fold(self, |json, step| {
            let step = step.replace("~1", "/").replace("~0", "~");
            match json {
                Self::Object(_) => json.get(&step),
                Self::List(items) if step == "0" || !step.starts_with(['0', '+']) => {
                    items.get(step.parse::<usize>().ok()?)
                }
                Self::List(_) | Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => None,
            }
        })
    }

    /// What an object has under this key.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let entries = self.entries();
        let at = entries.binary_search_by(|(known, _)| known.as_ref().cmp(key)).ok()?;
        Some(&entries[at].1)
    }

    /// What is in an object; nothing, where it is none.
    pub(crate) fn entries(&self) -> &[(Cow<'a, str>, Self)] {
        match self {
            Self::Object(entries) => entries,
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::List(_) => &[],
        }
    }

    /// What is in a list; nothing, where it is none.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::Object(_) => &[],
        }
    }

    /// The text that it is, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::List(_) | Self::Object(_) => None,
        }
    }

    /// Append the one spelling of this value. The order of keys, white space, escapes and the
    /// spelling of a number do not count. Each part says its kind and its length, so that no two
    /// values have the same spelling.
    pub(crate) fn spell(&self, spelling: &mut Vec<u8>) {
        match self {
            Self::Null => spelling.push(b'n'),
            Self::Bool(true) => spelling.push(b't'),
            Self::Bool(false) => spelling.push(b'f'),
            Self::Number(number) => spell_text(b'#', &number.to_string(), spelling),
            Self::Text(text) => spell_text(b'"', text, spelling),
            Self::List(items) => {
                spell_count(b'[', items.len(), spelling);
                for item in items {
                    item.spell(spelling);
                }
            }
            Self::Object(entries) => {
                spell_count(b'{', entries.len(), spelling);
                for (key, value) in entries {
                    spell_text(b'"', key, spelling);
                    value.spell(spelling);
                }
            }
        }
    }
}

fn spell_text(kind: u8, text: &str, spelling: &mut Vec<u8>) {
    spell_count(kind, text.len(), spelling);
    spelling.extend_from_slice(text.as_bytes());
}

/// The count goes by seven bits at a time (LEB128): most are one byte, and each is one to be hashed.
fn spell_count(kind: u8, mut count: usize, spelling: &mut Vec<u8>) {
    spelling.push(kind);
    while count > 0x7f {
        spelling.push(0x80 | count.to_le_bytes()[0]);
        count >>= 7;
    }
    spelling.push(count.to_le_bytes()[0]);
}

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    /// A whole number is an integer, as RFC 8785 has it: 1.0 and 1e0 are 1.
    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        if value.fract() == 0.0 && value.abs() <= EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and within ±2^53")]
            return Ok(Json::Number((value as i64).into()));
        }
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(text.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json<'de>, A::Error> {
        let mut object: Vec<(Cow<'de, str>, Json<'de>)> = Vec::new();
        while let Some(Key(key)) = entries.next_key()? {
            object.push((key, entries.next_value()?));
        }
        // The sort keeps what is equal in its order; so the last of it comes first, and is kept.
        object.reverse();
        object.sort_by(|(a, _), (b, _)| a.cmp(b));
        object.dedup_by(|(a, _), (b, _)| a == b);
        Ok(Json::Object(object))
    }
}

/// A key, borrowed where it can be: serde's `Cow` never is.
#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn spelling(text: &str) -> Vec<u8> {
        let mut spelling = Vec::new();
        serde_json::from_str::<Json<'_>>(text).unwrap().spell(&mut spelling);
        spelling
    }

    #[test]
    fn every_spelling_of_a_value_has_the_same_one() {
        let spellings = [
            r#"{"a":1,"b":[true,null,"x/y"],"c":{"d":-2.5}}"#,
            "{ \"c\" : {\"d\":-25e-1}, \"b\":[true , null,\"\\u0078\\/y\"], \"a\" : 1.0 }",
            r#"{"a":7,"b":0,"c":{"d":-2.50},"b":[true,null,"x\u002fy"],"a":1e0}"#,
        ];
        assert_eq!(spelling(spellings[1]), spelling(spellings[0]));
        assert_eq!(spelling(spellings[2]), spelling(spellings[0]));
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
        ];
        for (at, value) in values.iter().enumerate() {
            for other in &values[..at] {
                assert_ne!(spelling(value), spelling(other), "{value} and {other}");
            }
        }
    }

    #[test]
    fn a_pointer_finds_what_serde_json_finds() {
        let text = r#"{"a":{"b":[10,{"c":"x"}],"~/":1,"":2},"0":[3],"é":4}"#;
        let json: Json<'_> = serde_json::from_str(text).unwrap();
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
            "/0/0",
            "/é",
            "/a/b/1/c/0",
            "/none",
        ] {
            let mut expected = Vec::new();
            let mut found = Vec::new();
            if let Some(value) = value.pointer(pointer) {
                let text = value.to_string();
                serde_json::from_str::<Json<'_>>(&text).unwrap().spell(&mut expected);
            }
            if let Some(json) = json.pointer(pointer) {
                json.spell(&mut found);
            }
            assert_eq!(found, expected, "{pointer}");
        }
    }
}
