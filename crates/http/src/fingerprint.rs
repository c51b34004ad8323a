//! What makes two requests with one key the same request.

use std::iter;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use idempotent_sqs::Fingerprint;
use percent_encoding::percent_decode_str;

/// The fingerprint of a request: method, path, query, content type, content encoding and body.
///
/// The parameters of the query are sorted by their decoded names. A JSON body without a content encoding is compared by
/// value, with exact numbers, any other body byte by byte.
pub(crate) fn of(parts: &Parts, body: &[u8]) -> Fingerprint {
    let media_type = MediaType::of(parts);
    let mut content = Vec::new();
    let mut add = |part: &[u8]| {
        // With the length in front, parts cannot be shifted into each other.
        content.extend_from_slice(&part.len().to_be_bytes());
        content.extend_from_slice(part);
    };
    add(parts.method.as_str().as_bytes());
    add(parts.uri.path().as_bytes());
    let mut parameters: Vec<&str> = parts.uri.query().map(|query| query.split('&').collect()).unwrap_or_default();
    // Stable: parameters of the same name keep their order.
    parameters.sort_by_cached_key(|parameter| name_of(parameter));
    add(parameters.join("&").as_bytes());
    add(media_type.text.as_bytes());
    for encoding in parts.headers.get_all(CONTENT_ENCODING) {
        add(encoding.as_bytes());
    }
    // Compressed JSON is not parsed.
    let text =
        str::from_utf8(body).ok().filter(|_| media_type.is_json && !parts.headers.contains_key(CONTENT_ENCODING));
    match text.and_then(Fingerprint::of_json_text) {
        Some(json) => add(&[b"json ".as_slice(), json.as_bytes()].concat()),
        None => add(&[b"bytes ".as_slice(), body].concat()),
    }
    Fingerprint::of(&content)
}

/// The decoded name of a parameter: `a[]` of `a%5B%5D=1`. In a form, `+` is a space:
/// <https://url.spec.whatwg.org/#urlencoded-parsing>
fn name_of(parameter: &str) -> Vec<u8> {
    let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
    percent_decode_str(&name.replace('+', " ")).collect()
}

struct MediaType {
    text: String,
    is_json: bool,
}

impl MediaType {
    /// The content type. JSON has no charset: <https://www.rfc-editor.org/rfc/rfc8259#section-11>
    fn of(parts: &Parts) -> Self {
        let values = parts.headers.get_all(CONTENT_TYPE).iter();
        // Each byte is a character, because a value need not be UTF-8: RFC 9110, section 5.5.
        let text = |value: &HeaderValue| value.as_bytes().iter().copied().map(char::from).collect::<String>();
        let value = values.map(text).collect::<Vec<_>>().join(", ");
        let (essence, parameters) = value.split_once(';').unwrap_or((&value, ""));
        let essence = trimmed(essence).to_ascii_lowercase();
        let is_json = essence == "application/json" || essence.ends_with("+json");
        // A parameter's value, such as a boundary, may depend on case.
        let text = if is_json {
            let (mut is_quoted, mut is_escaped) = (false, false);
            let parameters = parameters.split(|character| {
                // A backslash escapes the next character of a quoted value.
                is_quoted ^= character == '"' && !is_escaped;
                is_escaped = is_quoted && character == '\\' && !is_escaped;
                character == ';' && !is_quoted
            });
            let is_kept = |text: &&str| !text.is_empty() && !text.to_ascii_lowercase().starts_with("charset=");
            let parameters = parameters.map(trimmed).filter(is_kept);
            iter::once(&*essence).chain(parameters).collect::<Vec<_>>().join(";")
        } else {
            format!("{essence};{}", trimmed(parameters))
        };
        Self { text, is_json }
    }
}

/// Without the white space of HTTP around it: RFC 9110, section 5.6.3.
fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn print(method: &str, uri: &str, content_type: &str, body: &[u8]) -> Fingerprint {
        let request = Request::builder().method(method).uri(uri).header(CONTENT_TYPE, content_type);
        of(&request.body(()).unwrap().into_parts().0, body)
    }

    #[test]
    fn json_is_compared_by_value() {
        let first = print("POST", "/p?b=2&a=1", "application/json", br#"{"amount":1250,"to":["x",null]}"#);
        let same = [
            ("application/json", r#"{ "to": ["x", null], "amount": 1250 }"#),
            ("application/json; charset=utf-8", r#"{"amount":1250,"to":["\u0078",null]}"#),
            ("Application/JSON", r#"{"amount":1250,"to":["x",null]}"#),
            (r#"application/json;Charset="utf-8""#, r#"{"amount":1250,"to":["x",null]}"#),
        ];
        for (content_type, body) in same {
            assert_eq!(print("POST", "/p?a=1&b=2", content_type, body.as_bytes()), first, "{body}");
        }
    }

    #[test]
    fn a_charset_of_json_makes_no_difference_behind_a_quoted_parameter() {
        for profile in [r#"application/ld+json; profile="a""#, r#"application/ld+json; profile="a\";b\\""#] {
            let of = |content_type: &str| print("POST", "/p", content_type, b"1");
            assert_eq!(of(&format!("{profile}; charset=utf-8")), of(profile), "{profile}");
        }
    }

    #[test]
    fn parameters_of_one_name_keep_their_order_however_it_is_encoded() {
        let of = |query: &str| print("POST", &format!("/p?{query}"), "text/plain", b"1");
        for [one, other] in [["a%5B%5D=1", "a[]=2"], ["%61=1", "a=2"], ["a+b=1", "a%20b=2"], ["a%2bb=1", "a%2Bb=2"]] {
            assert_ne!(of(&format!("{one}&{other}")), of(&format!("{other}&{one}")), "{one} {other}");
            assert_eq!(of(&format!("{one}&z=1")), of(&format!("z=1&{one}")), "{one}");
        }
    }

    #[test]
    fn content_types_with_other_bytes_than_ascii_are_told_apart() {
        let of = |value: &[u8]| {
            let request = Request::post("/").header(CONTENT_TYPE, HeaderValue::from_bytes(value).unwrap());
            super::of(&request.body(()).unwrap().into_parts().0, b"1")
        };
        assert_ne!(of(b"multipart/mixed; boundary=\xe4"), of(b"multipart/mixed; boundary=\xf6"));
        // Both are white space of Unicode.
        for byte in [b"\xa0", b"\x85"] {
            for value in [b"multipart/mixed; boundary=x".as_slice(), b"application/json; profile=x", b"text/plain"] {
                assert_ne!(of(&[value, byte].concat()), of(value));
            }
        }
        assert_eq!(of(b"multipart/mixed; boundary=\xe4"), of(b"multipart/mixed; boundary=\xe4"));
    }

    #[test]
    fn a_type_that_ends_with_json_is_json() {
        let of = |body| print("POST", "/", "application/vnd.payment+json", body);
        assert_eq!(of(b"[1]"), of(b"[ 1 ]"));
    }

    #[test]
    fn an_encoded_body_is_compared_by_its_bytes() {
        let print = |body: &[u8]| {
            let request = Request::post("/").header(CONTENT_TYPE, "application/json").header(CONTENT_ENCODING, "gzip");
            of(&request.body(()).unwrap().into_parts().0, body)
        };
        assert_eq!(print(b"[1]"), print(b"[1]"));
        assert_ne!(print(b"[1]"), print(b"[1.0]"));
    }

    #[test]
    fn numbers_are_compared_by_their_exact_value() {
        let of = |body: &str| print("POST", "/", "application/json", body.as_bytes());
        for (one, other) in [("1.0", "1"), ("12.50", "1.25e1"), ("1e16", "10000000000000000"), ("-0", "0")] {
            assert_eq!(of(one), of(other), "{one} {other}");
        }
        for (one, other) in [
            ("0.1", "0.10000000000000001"),
            ("9007199254740993.0", "9007199254740992.0"),
            ("18446744073709551616", "18446744073709551617"),
        ] {
            assert_ne!(of(one), of(other), "{one} {other}");
            assert_ne!(of(&format!("[{{\"a\":{one}}}]")), of(&format!("[{{\"a\":{other}}}]")));
        }
    }

    #[test]
    fn requests_that_differ_have_different_fingerprints() {
        let prints = [
            print("POST", "/p", "application/json", b"1"),
            print("PATCH", "/p", "application/json", b"1"),
            print("POST", "/q", "application/json", b"1"),
            print("POST", "/p?a=1", "application/json", b"1"),
            print("POST", "/p?a=1&a=2", "application/json", b"1"),
            print("POST", "/p?a=2&a=1", "application/json", b"1"),
            print("POST", "/p", "text/plain", b"1"),
            print("POST", "/p", "text/plain", b"1 "),
            print("POST", "/p", "text/plain; charset=utf-8", b"1"),
            print("POST", "/p", "application/json; version=1", b"1"),
            print("POST", "/p", "application/json; version=2", b"1"),
            print("POST", "/p", "application/ld+json", b"1"),
            print("POST", "/p", r#"application/ld+json; profile="flat""#, b"1"),
            print("POST", "/p", r#"application/ld+json; profile="a;charset=x""#, b"1"),
            print("POST", "/p", r#"application/ld+json; profile="a;charset=y""#, b"1"),
            print("POST", "/p", r#"application/ld+json; profile="a\"; charset=x""#, b"1"),
            print("POST", "/p", r#"application/ld+json; profile="a\"; charset=y""#, b"1"),
            print("POST", "/p", "multipart/mixed; boundary=a", b"1"),
            print("POST", "/p", "multipart/mixed; boundary=A", b"1"),
            print("POST", "/p", "application/json", b"2"),
            print("POST", "/p", "application/json", b"{"),
            print("POST", "/p", "application/json", b"{ "),
            print("POST", "/p", "application/json", br#"{"amount":1250}"#),
            print("POST", "/p", "application/json", br#"{"amount":99,"amount":1250}"#),
            print("POST", "/p", "application/json", b""),
            print("POST", "/p", "application/octet-stream", b"\xff\x00"),
            print("POST", "/p", "application/octet-stream", b"\xff\x01"),
        ];
        for (index, one) in prints.iter().enumerate() {
            assert!(!prints[..index].contains(one), "{index}");
        }
    }

    #[test]
    fn requests_whose_parts_are_split_elsewhere_have_different_fingerprints() {
        let print = |uri: &str, content_type: &str, encodings: &[&str], body: &[u8]| {
            let request = Request::post(uri).header(CONTENT_TYPE, content_type);
            let request = encodings.iter().fold(request, |request, one| request.header(CONTENT_ENCODING, *one));
            of(&request.body(()).unwrap().into_parts().0, body)
        };
        let pairs = [
            [print("/a?b=1", "text/plain", &[], b"c"), print("/ab=1", "text/plain", &[], b"c")],
            [print("/a?b=text", "/plain", &[], b"c"), print("/a?b=", "text/plain", &[], b"c")],
            [print("/a", "text/plain; gzip", &[], b"c"), print("/a", "text/plain", &["gzip"], b"c")],
            [print("/a", "text/plain", &["gzip", "br"], b"c"), print("/a", "text/plain", &["gzipbr"], b"c")],
            [print("/a", "text/plain; bytes b=", &[], b"c"), print("/a", "text/plain", &[], b"b=bytes c")],
        ];
        for (index, [one, other]) in pairs.iter().enumerate() {
            assert_ne!(one, other, "{index}");
        }
    }
}
