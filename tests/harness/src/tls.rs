//! TLS of the proxies that replace AWS's servers.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// One key and one certificate for all tests of a process, because creating them takes seconds.
static TLS: OnceLock<Tls> = OnceLock::new();

pub struct Tls {
    pub acceptor: TlsAcceptor,
    authority: Vec<u8>,
}

impl Tls {
    pub async fn of_all_tests() -> &'static Self {
        tokio::task::spawn_blocking(|| TLS.get_or_init(Self::generate)).await.unwrap()
    }

    /// Writes the certificate authority to a file in this directory.
    pub fn authority_in(&self, directory: &TempDir) -> PathBuf {
        let file = directory.path().join("ca.crt");
        std::fs::write(&file, &self.authority).unwrap();
        file
    }

    fn generate() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = redis_test::utils::build_keys_and_certs_for_tls(&directory);
        let chain = CertificateDer::pem_file_iter(&files.redis_crt).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(&files.redis_key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
        Self { acceptor, authority: std::fs::read(&files.ca_crt).unwrap() }
    }
}
