//! The root certificates of Amazon RDS in this crate, read by openssl.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

const FILE: &str = include_str!("../../certificates/rds.pem");

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----\n";

const ONE_YEAR: &str = "31536000";

/// Each certificate with the line above it.
fn certificates() -> Vec<(&'static str, String)> {
    let parts = FILE.split_inclusive(END).filter_map(|part| part.split_once(BEGIN));
    parts.map(|(above, pem)| (above.lines().last().unwrap(), format!("{BEGIN}{pem}"))).collect()
}

/// The output of openssl for this input, and whether it succeeded.
fn openssl(arguments: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("openssl");
    let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn each_certificate_is_a_root_of_amazon_rds_that_signed_itself_and_is_valid_for_a_year() {
    let certificates = certificates();
    assert_eq!(certificates.len(), FILE.matches(BEGIN).count());
    for (above, pem) in &certificates {
        let (_, shown) = openssl(&["x509", "-noout", "-subject", "-issuer", "-nameopt", "sep_multiline,sname"], pem);
        let (subject, issuer) = shown.trim().split_once("issuer=").unwrap();
        let subject = subject.strip_prefix("subject=").unwrap();
        assert_eq!(subject.trim(), issuer.trim(), "{above}");
        let (name, _) = above.split_once(", until ").unwrap();
        let has = |part: &str| subject.lines().any(|line| line.trim() == part);
        assert!(has("O=Amazon Web Services, Inc.") && has(&format!("CN={name}")), "{above}: {subject}");
        assert!(openssl(&["x509", "-noout", "-checkend", ONE_YEAR], pem).0, "{above} expires within a year");

        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("root.pem");
        std::fs::write(&file, pem).unwrap();
        let file = file.to_str().unwrap();
        let alone = ["verify", "-check_ss_sig", "-no-CApath", "-no-CAstore", "-CAfile", file, file];
        assert!(openssl(&alone, "").0, "{above} did not sign itself");
    }
}

#[test]
fn each_region_has_a_certificate_of_each_algorithm() {
    let mut algorithms: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (above, _) in certificates() {
        let (region, algorithm) = above.strip_prefix("Amazon RDS ").unwrap().split_once(" Root CA ").unwrap();
        algorithms.entry(region).or_default().push(algorithm.split(' ').next().unwrap());
    }
    assert!(algorithms.values().all(|found| found == &["ECC384", "RSA2048", "RSA4096"]), "{algorithms:?}");
    for region in ["us-east-1", "us-west-2", "eu-central-1", "eu-west-1", "ap-northeast-1", "sa-east-1"] {
        assert!(algorithms.contains_key(region), "{region}");
    }
}
