//! The root certificates that TLS trusts.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{Error, PemObject};

use super::DatabaseUrl;

/// The root certificates of Amazon RDS by region, as PEM. No system has them, and a package that `cargo lambda` or SAM
/// builds contains no file beside the binary.
const RDS_ROOTS: &[u8] = include_bytes!("../../certificates/rds.pem");

/// The certificates of the file `sslrootcert`; without it those of the system, and of RDS if all hosts are there.
///
/// # Errors
/// If the file cannot be read, or has no certificate.
pub(super) fn trusted(url: &DatabaseUrl) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = &url.roots {
        let certificates: Vec<_> = CertificateDer::pem_file_iter(file)?.collect::<Result<_, _>>()?;
        return match roots.add_parsable_certificates(certificates) {
            (0, _) => Err(Error::NoItemsFound),
            (_, _) => Ok(roots),
        };
    }
    // The system's store may contain an invalid certificate, which is skipped.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if url.is_on_rds() {
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(RDS_ROOTS).filter_map(Result::ok));
    }
    Ok(roots)
}

impl DatabaseUrl {
    /// Whether the file `sslrootcert` can be used, if there is one. The error does not contain the URL.
    pub(crate) fn check_roots(&self) -> Result<(), Error> {
        if self.roots.is_some() && self.uses_tls() { trusted(self).map(drop) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The roots that are trusted for this URL and whose subject contains this name.
    fn count(url: &str, name: &str) -> usize {
        let roots = trusted(&url.parse().unwrap()).unwrap();
        let has_name = |subject: &[u8]| subject.windows(name.len()).any(|part| part == name.as_bytes());
        roots.roots.iter().filter(|root| has_name(&root.subject)).count()
    }

    #[test]
    fn the_roots_of_rds_are_trusted_for_hosts_of_rds_only() {
        let on_rds = "postgres://payer@payments.abcdef.eu-central-1.rds.amazonaws.com/payments";
        assert_eq!(count(on_rds, "Amazon RDS eu-central-1 Root CA"), 3);
        assert_eq!(count(on_rds, "Amazon RDS "), 81);
        assert_eq!(count("postgres://payer@PAYMENTS.abcdef.eu-central-1.RDS.amazonaws.com", "Amazon RDS "), 81);
        let others =
            ["db.internal", "rds.amazonaws.com.db.internal", "evil-rds.amazonaws.com", "a.rds.amazonaws.com,db"];
        for other in others {
            assert_eq!(count(&format!("postgres://payer@{other}/payments"), "Amazon RDS "), 0, "{other}");
        }
    }

    #[test]
    fn the_file_of_sslrootcert_replaces_the_roots_of_rds_and_of_the_system() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let end = b"-----END CERTIFICATE-----\n";
        let first = RDS_ROOTS.windows(end.len()).position(|part| part == end).unwrap() + end.len();
        std::fs::write(&file, &RDS_ROOTS[..first]).unwrap();
        let path = file.path().to_str().unwrap();
        let url = format!("postgres://payer@payments.abcdef.eu-central-1.rds.amazonaws.com?sslrootcert={path}");
        assert_eq!(trusted(&url.parse().unwrap()).unwrap().roots.len(), 1);
    }
}
