//! Streams of a simulated network, for tests with the feature `simulation`.

use std::io;
use std::pin::pin;
use std::sync::OnceLock;

use futures_util::future::{BoxFuture, Either, select};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Config, Connection, Error, NoTls, SimpleQueryMessage};

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
    let mut config = config.clone();
    config.ssl_mode(SslMode::Disable);
    let Ok(stream) = dial(config.clone()).await else { return refused(&config).await };
    let (client, mut connection) = config.connect_raw(stream, NoTls).await?;
    // As `Config::connect` does.
    if config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite {
        let shown = pin!(client.simple_query("SHOW transaction_read_only"));
        let accepts_writes = match select(shown, &mut connection).await {
            Either::Left((replies, _)) => replies?.iter().any(is_off),
            Either::Right(_) => false,
        };
        if !accepts_writes {
            return refused(&config).await;
        }
    }
    Ok((client, connection))
}

/// An error of the driver, which only it can create: that of a stream which has ended.
async fn refused(config: &Config) -> Result<(Client, Connection<Box<dyn Stream>, NoTlsStream>), Error> {
    config.connect_raw(Box::new(tokio::io::empty()) as Box<dyn Stream>, NoTls).await
}

fn is_off(reply: &SimpleQueryMessage) -> bool {
    matches!(reply, SimpleQueryMessage::Row(row) if row.get(0) == Some("off"))
}
