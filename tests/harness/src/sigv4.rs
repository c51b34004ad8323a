//! Checks the Signature Version 4 of a request, as its receiver does.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};

use super::http::Request;

/// A parsed presigned request: its host, and its percent-encoded parameters.
/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html>
pub struct Presigned<'a> {
    pub host: &'a str,
    parameters: BTreeMap<&'a str, &'a str>,
}

impl<'a> Presigned<'a> {
    pub fn new(request: &'a str) -> Option<Self> {
        let (host, query) = request.split_once("/?")?;
        let parameters = query.split('&').map(|parameter| parameter.split_once('=')).collect::<Option<_>>()?;
        Some(Self { host, parameters })
    }

    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).copied().unwrap_or_default()
    }

    /// Credential scope: day, region and service.
    pub fn scope(&self) -> String {
        let credential = self.parameter("X-Amz-Credential").replace("%2F", "/");
        credential.split_once('/').map(|(_, scope)| scope.to_owned()).unwrap_or_default()
    }

    pub fn signed_at(&self) -> SystemTime {
        let date = self.parameter("X-Amz-Date");
        let number = |from: usize, to: usize| date[from..to].parse::<u64>().unwrap();
        let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
        // In years that begin in March, the leap day is the last day.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
        let seconds = number(9, 11) * 3600 + number(11, 13) * 60 + number(13, 15);
        UNIX_EPOCH + Duration::from_secs(days * 86_400 + seconds)
    }

    pub fn ends_at(&self) -> SystemTime {
        self.signed_at() + Duration::from_secs(self.parameter("X-Amz-Expires").parse().unwrap())
    }

    pub fn is_signed_with(&self, secret_key: &str) -> bool {
        let signed = self.parameters.iter().filter(|(name, _)| **name != "X-Amz-Signature");
        let query: Vec<_> = signed.map(|(name, value)| format!("{name}={value}")).collect();
        let body = hex(digest(&SHA256, b"").as_ref());
        let request = format!("GET\n/\n{}\nhost:{}\n\nhost\n{body}", query.join("&"), self.host);
        self.parameter("X-Amz-Signature")
            == signature(&request, self.parameter("X-Amz-Date"), &self.scope(), secret_key)
    }
}

/// The access key and the scope of a request to S3 without parameters, if its headers have the right signature.
/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>
pub fn signer<'a>(request: &'a Request, secret_key: &str) -> Option<(&'a str, &'a str)> {
    let authorization = request.header("Authorization")?.strip_prefix("AWS4-HMAC-SHA256 Credential=")?;
    let (credential, rest) = authorization.split_once(", SignedHeaders=")?;
    let (signed_headers, given) = rest.split_once(", Signature=")?;
    let (access_key, scope) = credential.split_once('/')?;
    let hash = hex(digest(&SHA256, &request.body).as_ref());
    let mut text = format!("{}\n{}\n\n", request.method, request.path);
    for name in signed_headers.split(';') {
        writeln!(text, "{name}:{}", request.header(name)?).unwrap();
    }
    write!(text, "\n{signed_headers}\n{hash}").unwrap();
    let is_complete = request.header("X-Amz-Content-Sha256") == Some(&*hash)
        && ["host", "x-amz-content-sha256", "x-amz-date"]
            .iter()
            .all(|name| signed_headers.split(';').any(|h| h == *name));
    (is_complete && given == signature(&text, request.header("X-Amz-Date")?, scope, secret_key))
        .then_some((access_key, scope))
}

/// The signature of a canonical request.
fn signature(request: &str, date: &str, scope: &str, secret_key: &str) -> String {
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(digest(&SHA256, request.as_bytes()).as_ref()));
    let secret = format!("AWS4{secret_key}").into_bytes();
    let key = scope.split('/').fold(secret, |key, part| hmac(&key, part));
    hex(&hmac(&key, &text))
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    sign(&Key::new(HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}
