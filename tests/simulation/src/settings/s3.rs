//! Payloads and results in S3: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>.

use super::written::Written;
use super::{Read, long};

/// Returns whether larger results are kept.
pub(super) fn write_s3(written: &mut Written, namespace: &str, takes_envelopes: bool) -> bool {
    write_payloads(written, takes_envelopes);
    write_max_bytes(written);
    let keeps_results = write_results(written, namespace);
    write_endpoint(written);
    keeps_results
}

const PAYLOADS: &str = "PAYLOAD_BUCKETS";
const RESULTS: &str = "RESULT_BUCKET";
const PREFIX: &str = "RESULT_PREFIX";

fn write_payloads(written: &mut Written, takes_envelopes: bool) {
    let mut buckets = Vec::new();
    // Without envelopes, pointers are not followed.
    let has_buckets = if takes_envelopes { written.rng.happens(500) } else { written.is_invalid() };
    if has_buckets {
        if !takes_envelopes {
            written.error("PAYLOAD_BUCKETS is set, and with IDEMPOTENCY_ENVELOPE=none ");
        }
        buckets = (0..written.rng.draw(1..4)).map(|_| valid_bucket(written)).collect();
        let mut names = buckets.clone();
        if written.is_invalid() {
            let name = invalid_bucket(written, PAYLOADS);
            names.push(name);
        }
        let separator = *written.rng.pick(&[",", " , "]);
        written.set(PAYLOADS, &names.join(separator));
    }
    let read = |read: &Read| format!("{:?}", read.config.batch.extended_client.buckets);
    written.expect(PAYLOADS, read, format!("{buckets:?}"));
}

fn write_max_bytes(written: &mut Written) {
    const MAX_BYTES: &str = "PAYLOAD_MAX_BYTES";
    let has_buckets = written.has(PAYLOADS);
    let mut max_bytes = 4_194_304;
    if has_buckets || written.is_invalid() {
        max_bytes = written.unread_number(MAX_BYTES, 1..=1 << 30, max_bytes);
    }
    if !has_buckets && written.has(MAX_BYTES) {
        written.error("PAYLOAD_MAX_BYTES is set, and PAYLOAD_BUCKETS is not");
    }
    written.expect(MAX_BYTES, |read| read.config.batch.extended_client.max_bytes.to_string(), max_bytes);
}

/// Returns whether larger results are kept.
fn write_results(written: &mut Written, namespace: &str) -> bool {
    let bucket = if written.is_invalid() {
        let name = invalid_bucket(written, RESULTS);
        written.set(RESULTS, name);
        None
    } else {
        let bucket = written.rng.happens(500).then(|| valid_bucket(written));
        if let Some(name) = bucket {
            written.set(RESULTS, name);
        }
        bucket
    };
    let has_prefix = if written.has(RESULTS) { written.rng.happens(500) } else { written.is_invalid() };
    let mut prefix = "";
    if has_prefix {
        let names = ["results/", "a/..b/.c./", "ä", long(790), long(801)];
        prefix =
            if written.is_invalid() { *written.rng.pick(&["../", "a/./", "./"]) } else { *written.rng.pick(&names) };
        written.set(PREFIX, prefix);
    }
    let name = format!("{prefix}{namespace}");
    if !written.has(RESULTS) && has_prefix {
        written.error("RESULT_PREFIX is set, and RESULT_BUCKET is not");
    } else if written.has(RESULTS) && (name.len() > 800 || name.split('/').any(|part| [".", ".."].contains(&part))) {
        written.error("RESULT_PREFIX is invalid");
    }
    let read = |read: &Read| {
        let results = read.config.policy.results.as_ref();
        format!("{:?}", results.map(|results| (results.bucket.clone(), results.prefix.clone())))
    };
    written.expect(RESULTS, read, format!("{:?}", bucket.map(|bucket| (bucket, name + "/"))));
    bucket.is_some()
}

/// The region and the endpoint, which are read if there are buckets.
fn write_endpoint(written: &mut Written) {
    let has_buckets = written.has(PAYLOADS) || written.has(RESULTS);
    let region = *written.rng.pick(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
    if !written.is_invalid() {
        written.set(region, "eu-central-1");
    } else if has_buckets {
        written.error("AWS_REGION is missing");
    }
    let endpoint = *written.rng.pick(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
    if written.is_invalid() {
        let url = *written.rng.pick(&["localhost", "ftp://localhost"]);
        written.set(endpoint, url);
        let is_ignored = written.rng.happens(300);
        if is_ignored {
            let value = *written.rng.pick(&["true", "True"]);
            written.set("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", value);
        } else if has_buckets {
            written.error(format!("{endpoint} is invalid"));
        }
    } else if written.rng.happens(300) {
        written.set(endpoint, "http://localhost:9000");
    }
}

fn valid_bucket(written: &mut Written) -> &'static str {
    written.rng.pick::<&str>(&["payments-payloads", "a.b", "0a1", long(63)])
}

/// A text that is not the name of a bucket, which is an error.
fn invalid_bucket(written: &mut Written, setting: &str) -> &'static str {
    let name = *written.rng.pick(&["ab", "Payments", "-abc", "abc-", ".abc", "abc.", "a..b", "a_b", long(64)]);
    written.error(format!("{setting}: {name:?} is not the name of an S3 bucket"));
    name
}
