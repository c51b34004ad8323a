//! The header `Idempotency-Key`.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header of the IETF draft.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest key, characters.
const MAX_LENGTH: usize = 255;

/// A valid key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientKey {
    /// Without quotes and escapes.
    pub(crate) text: String,
    /// As the client sent it.
    pub(crate) header: HeaderValue,
}

/// The header is not a valid key, or occurs more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedKey;

impl ClientKey {
    /// The key of these headers, `None` without the header.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, MalformedKey> {
        let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(header) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(MalformedKey);
        }
        let text = header.to_str().ok().and_then(|value| parse(value.trim_matches([' ', '\t'])));
        let text = text.filter(|text| (1..=MAX_LENGTH).contains(&text.len())).ok_or(MalformedKey)?;
        Ok(Some(Self { text, header: header.clone() }))
    }
}

/// A String of structured fields (RFC 8941, section 3.3.3), or a bare key, which many clients send. A bare key has no
/// space, comma, semicolon, quote or backslash: with these it would be a list, a parameter or a broken String.
fn parse(value: &str) -> Option<String> {
    let Some(quoted) = value.strip_prefix('"') else {
        let is_bare = |c: char| c.is_ascii_graphic() && !"\",;\\".contains(c);
        return value.chars().all(is_bare).then(|| value.to_owned());
    };
    let (mut text, mut chars) = (String::new(), quoted.strip_suffix('"')?.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push(chars.next().filter(|escaped| "\"\\".contains(*escaped))?),
            ' '..='~' if c != '"' => text.push(c),
            _ => return None,
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(value: &[u8]) -> Result<String, MalformedKey> {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
        ClientKey::of(&headers).map(|key| key.unwrap().text)
    }

    #[test]
    fn a_quoted_and_a_bare_key_are_the_same() {
        for value in ["\"pay_7f3a\"", "pay_7f3a", " pay_7f3a ", "\t\"pay_7f3a\" "] {
            assert_eq!(key(value.as_bytes()).as_deref(), Ok("pay_7f3a"), "{value}");
        }
        assert_eq!(key(br#""a \"b\" \\c""#).as_deref(), Ok(r#"a "b" \c"#));
        assert_eq!(key(b"8e03978e-40d5-43dd-bc93-6894a57f9324").as_deref(), Ok("8e03978e-40d5-43dd-bc93-6894a57f9324"));
        assert_eq!(key(b"a:b/c=d?e+f.g~h{i}").as_deref(), Ok("a:b/c=d?e+f.g~h{i}"));
    }

    #[test]
    fn a_malformed_key_is_an_error() {
        let malformed: &[&[u8]] = &[
            b"",
            b" ",
            b"\"\"",
            b"\"",
            b"\"a",
            b"a\"",
            b"\"a\"b",
            b"\"a\"b\"",
            b"a b",
            b"a,b",
            b"\"a\", \"b\"",
            b"a;b=1",
            b"\"a\";b=1",
            b"\"a\\\"",
            b"\"\\a\"",
            b"a\\b",
            b"\"a\tb\"",
            b"k\xff",
            b"\"k\xc3\xa9\"",
        ];
        for value in malformed {
            assert_eq!(key(value), Err(MalformedKey), "{}", value.escape_ascii());
        }
    }

    #[test]
    fn a_key_has_at_most_255_characters_without_quotes_and_escapes() {
        for (length, is_valid) in [(255, true), (256, false)] {
            let text = "x".repeat(length);
            assert_eq!(key(text.as_bytes()).is_ok(), is_valid);
            assert_eq!(key(format!("\"{text}\"").as_bytes()).is_ok(), is_valid);
            assert_eq!(key(format!("\"{}\"", "\\\"".repeat(length)).as_bytes()).is_ok(), is_valid);
        }
    }

    #[test]
    fn no_header_is_no_key_and_two_are_an_error() {
        let mut headers = HeaderMap::new();
        assert_eq!(ClientKey::of(&headers), Ok(None));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("a"));
        assert_eq!(ClientKey::of(&headers), Err(MalformedKey));
    }

    proptest! {
        #[test]
        fn a_quoted_key_of_printable_characters_is_read_back(text in "[ -~]{1,255}") {
            let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(key(quoted.as_bytes()), Ok(text));
        }

        #[test]
        fn any_header_value_is_a_key_or_an_error(value in prop::collection::vec(0x20..=0xff_u8, 0..300)) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            if let Ok(text) = key(value.as_bytes()) {
                prop_assert!((1..=255).contains(&text.len()) && text.is_ascii());
            }
        }
    }
}
