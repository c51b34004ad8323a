//! Responses as results of their record.
//!
//! ```text
//! version (1) | marks (1: the body was not kept) | status u16 | number of headers u16
//! for each header: length u16, name, length u32, value
//! body
//! ```

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use crate::headers::{self, BODY_OMITTED, REPLAYED};

const VERSION: u8 = 1;
const BODY_NOT_KEPT: u8 = 1;

/// Status and headers of a response, in front of its body.
pub(crate) fn head(status: StatusCode, headers: &HeaderMap, dropped: &[HeaderName]) -> Vec<u8> {
    encode(0, status, headers::kept(headers, dropped), usize::MAX)
}

/// Status and headers of a response without its body: those headers that fit into `max_bytes`.
pub(crate) fn head_without_body(
    status: StatusCode,
    headers: &HeaderMap,
    dropped: &[HeaderName],
    max_bytes: usize,
) -> Vec<u8> {
    let headers = headers::kept(headers, dropped).filter(|(name, _)| !headers::describes_body(name));
    encode(BODY_NOT_KEPT, status, headers, max_bytes)
}

fn encode<'a>(
    marks: u8,
    status: StatusCode,
    headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
    max_bytes: usize,
) -> Vec<u8> {
    let mut bytes = vec![VERSION, marks];
    bytes.extend(status.as_u16().to_be_bytes());
    let count_at = bytes.len();
    bytes.extend([0; 2]);
    let mut count = 0_u16;
    // A header map may have more values than the count can hold.
    for (name, value) in headers.take(usize::from(u16::MAX)) {
        // The name of a header has fewer than 2^16 bytes.
        let (Ok(name_length), Ok(value_length)) = (u16::try_from(name.as_str().len()), u32::try_from(value.len()))
        else {
            continue;
        };
        if bytes.len() + 6 + name.as_str().len() + value.len() > max_bytes {
            continue;
        }
        bytes.extend(name_length.to_be_bytes());
        bytes.extend(name.as_str().as_bytes());
        bytes.extend(value_length.to_be_bytes());
        bytes.extend(value.as_bytes());
        count += 1;
    }
    bytes[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
    bytes
}

/// The result of a [`Work`](idempotent_sqs::Work) that answers with this response: its status, headers and body. The
/// headers that a retry must not get are left out, so the first client does not get them either.
#[must_use]
pub fn encode_response<B: AsRef<[u8]>>(response: &Response<B>) -> Vec<u8> {
    let mut bytes = head(response.status(), response.headers(), &[]);
    bytes.extend_from_slice(response.body().as_ref());
    bytes
}

/// The response that was stored, without these headers, and marked as replayed. `None` if these bytes are not a
/// response.
pub(crate) fn replay(stored: &[u8], dropped: &[HeaderName]) -> Option<Response<Bytes>> {
    let mut response = restore(stored)?;
    for name in dropped {
        response.headers_mut().remove(name);
    }
    response.headers_mut().try_insert(REPLAYED, HeaderValue::from_static("true")).ok()?;
    Some(response)
}

/// The response that was stored. `None` if these bytes are not a response.
pub(crate) fn restore(stored: &[u8]) -> Option<Response<Bytes>> {
    let mut rest = stored;
    let [version, marks] = *take::<2>(&mut rest)?;
    let status = StatusCode::from_u16(u16::from_be_bytes(*take(&mut rest)?)).ok()?;
    if version != VERSION {
        return None;
    }
    let mut headers = HeaderMap::new();
    for _ in 0..u16::from_be_bytes(*take(&mut rest)?) {
        let name_length = u16::from_be_bytes(*take(&mut rest)?).into();
        let name = HeaderName::from_bytes(slice(&mut rest, name_length)?).ok()?;
        let value_length = usize::try_from(u32::from_be_bytes(*take(&mut rest)?)).ok()?;
        let value = HeaderValue::from_bytes(slice(&mut rest, value_length)?).ok()?;
        headers.try_append(name, value).ok()?;
    }
    if marks & BODY_NOT_KEPT != 0 {
        headers.try_insert(BODY_OMITTED, HeaderValue::from_static("true")).ok()?;
    }
    let mut response = Response::new(Bytes::copy_from_slice(rest));
    // A replay does not switch protocols.
    *response.status_mut() = if status == StatusCode::SWITCHING_PROTOCOLS { StatusCode::OK } else { status };
    *response.headers_mut() = headers;
    Some(response)
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

fn slice<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (first, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static [u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn stored(pairs: &[(&'static str, &'static [u8])], body: &[u8]) -> Response<Bytes> {
        let dropped = [HeaderName::from_static("x-node")];
        replay(&[head(StatusCode::CREATED, &headers(pairs), &dropped), body.to_vec()].concat(), &[]).unwrap()
    }

    #[test]
    fn status_headers_and_any_bytes_are_kept() {
        let body: Vec<u8> = (0..=255).collect();
        let replayed = stored(
            &[("location", b"/p/1"), ("etag", b"\"a\""), ("content-type", b"image/png"), ("x-a", b"\xff")],
            &body,
        );
        assert_eq!((replayed.status(), replayed.body().as_ref()), (StatusCode::CREATED, body.as_slice()));
        let expected = [
            ("location", b"/p/1" as &[u8]),
            ("etag", b"\"a\""),
            ("content-type", b"image/png"),
            ("x-a", b"\xff"),
            ("idempotent-replayed", b"true"),
        ];
        assert_eq!(replayed.headers(), &headers(&expected));
    }

    #[test]
    fn a_header_that_occurs_twice_is_kept_twice_in_this_order() {
        let links: [(_, &[u8]); 2] = [("link", b"</p/2>; rel=next"), ("link", b"</p/1>; rel=self")];
        let replayed = stored(&links, b"");
        let values: Vec<_> = replayed.headers().get_all("link").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(values, links.map(|(_, value)| value));
    }

    #[test]
    fn headers_of_one_connection_session_or_trace_are_dropped() {
        let replayed = stored(
            &[
                ("connection", b"close, X-Hop"),
                ("x-hop", b"1"),
                ("keep-alive", b"1"),
                ("transfer-encoding", b"chunked"),
                ("date", b"1"),
                ("set-cookie", b"a=b"),
                ("www-authenticate", b"Basic"),
                ("authorization", b"a"),
                ("traceparent", b"1"),
                ("x-request-id", b"1"),
                ("x-b3-traceid", b"1"),
                ("content-length", b"3"),
                ("idempotent-replayed", b"false"),
                ("x-node", b"7"),
                ("x-kept", b"1"),
            ],
            b"",
        );
        assert_eq!(replayed.headers(), &headers(&[("x-kept", b"1"), ("idempotent-replayed", b"true")]));
    }

    #[test]
    fn a_response_without_its_body_is_marked_and_does_not_describe_one() {
        let original = headers(&[
            ("content-type", b"video/mp4"),
            ("content-encoding", b"gzip"),
            ("digest", b"a"),
            ("repr-digest", b"sha-256=:YQ==:"),
            ("etag", b"\"a\""),
        ]);
        let replayed = replay(&head_without_body(StatusCode::OK, &original, &[], usize::MAX), &[]).unwrap();
        let expected = [
            ("content-type", b"video/mp4" as &[u8]),
            ("etag", b"\"a\""),
            ("idempotent-replayed", b"true"),
            ("idempotent-body-omitted", b"true"),
        ];
        assert_eq!(replayed.headers(), &headers(&expected));
        assert!(replayed.body().is_empty());
    }

    #[test]
    fn a_response_without_its_body_keeps_the_headers_that_fit() {
        let long = "x".repeat(100);
        let mut original = headers(&[("location", b"/p/1"), ("etag", b"\"a\"")]);
        original.insert("x-long", long.parse().unwrap());
        let stored = head_without_body(StatusCode::CREATED, &original, &[], 60);
        assert!(stored.len() <= 60);
        let replayed = replay(&stored, &[]).unwrap();
        let names = ["location", "etag", "x-long"].map(|name| replayed.headers().contains_key(name));
        assert_eq!((replayed.status(), names), (StatusCode::CREATED, [true, true, false]));
        let whole = head_without_body(StatusCode::CREATED, &original, &[], usize::MAX);
        let within = |max_bytes| head_without_body(StatusCode::CREATED, &original, &[], max_bytes);
        assert_eq!(within(whole.len()), whole);
        assert!(within(whole.len() - 1).len() < whole.len());
    }

    #[test]
    fn a_response_with_more_values_of_a_header_than_a_record_can_count_keeps_the_first_and_its_body() {
        let values = std::iter::repeat_n((HeaderName::from_static("x-a"), HeaderValue::from_static("")), 65_540);
        let stored = [head(StatusCode::OK, &values.collect(), &[]), b"paid".to_vec()].concat();
        let replayed = replay(&stored, &[]).unwrap();
        assert_eq!(
            (replayed.headers().get_all("x-a").iter().count(), replayed.body().as_ref()),
            (65_535, b"paid" as &[u8])
        );
    }

    /// A header map has fewer than 2^15 names.
    #[test]
    fn bytes_with_too_many_names_of_headers_are_no_response() {
        let stored = |names: u16, marks: u8| {
            let mut bytes = [&[VERSION, marks] as &[u8], &200_u16.to_be_bytes(), &names.to_be_bytes()].concat();
            for name in 0..names {
                bytes.extend(5_u16.to_be_bytes());
                bytes.extend(format!("h{name:04x}").as_bytes());
                bytes.extend([0; 4]);
            }
            bytes
        };
        assert!(replay(&stored(1000, BODY_NOT_KEPT), &[]).is_some());
        for (names, marks) in [(24_576, 0), (24_575, BODY_NOT_KEPT), (24_576, BODY_NOT_KEPT), (40_000, 0)] {
            assert!(replay(&stored(names, marks), &[]).is_none(), "{names}");
        }
    }

    #[test]
    fn a_response_in_a_later_format_is_not_replayed() {
        let mut later = head(StatusCode::CREATED, &HeaderMap::new(), &[]);
        assert!(replay(&later, &[]).is_some());
        later[0] = VERSION + 1;
        assert!(replay(&later, &[]).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_response_or_none(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = replay(&[vec![VERSION], bytes.clone()].concat(), &[]);
            let _ = replay(&bytes, &[]);
        }
    }
}
