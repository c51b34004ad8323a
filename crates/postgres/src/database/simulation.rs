//! Streams of a simulated network, for tests with the feature `simulation`.

use std::io;
use std::sync::OnceLock;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, Error, NoTls};

/// A stream of the simulated network.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens a stream to the only host of this configuration.
pub type Dial = fn(Config) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;

static DIAL: OnceLock<Dial> = OnceLock::new();

/// From now on, all connections of this process are opened by `dial`, without TLS. The first call counts.
pub fn dial_with(dial: Dial) {
    let _first = DIAL.set(dial);
}

pub(super) fn dial() -> Option<Dial> {
    DIAL.get().copied()
}

pub(super) async fn connect(
    config: &Config,
    dial: Dial,
) -> Result<(Client, Connection<Box<dyn Stream>, NoTlsStream>), Error> {
    // Only the driver can create its errors, as it does for a stream that has ended.
    let stream = dial(config.clone()).await.unwrap_or_else(|_| Box::new(tokio::io::empty()));
    config.clone().ssl_mode(SslMode::Disable).connect_raw(stream, NoTls).await
}
