//! Connections of a simulated network, for tests with the feature `simulation`.

use std::io;
use std::sync::OnceLock;

use futures_util::future::BoxFuture;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::Connect;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisFuture, Value};
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream of the simulated network.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens a stream to this address, without TLS.
pub type Dial = fn(ConnectionAddr) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;

static DIAL: OnceLock<Dial> = OnceLock::new();

/// From now on, all connections of this process are opened by `dial`. The first call counts.
pub fn dial_with(dial: Dial) {
    let _first = DIAL.set(dial);
}

/// A connection to one server, of the simulated network if there is one.
#[derive(Clone)]
pub struct Node(MultiplexedConnection);

impl Connect for Node {
    fn connect_with_config<'a, T>(server: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        Box::pin(async move {
            let server = server.into_connection_info()?;
            let Some(dial) = DIAL.get() else {
                return MultiplexedConnection::connect_with_config(server, config).await.map(Self);
            };
            let stream = dial(server.addr().clone()).await?;
            let settings = server.redis_settings();
            let (connection, driver) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
            tokio::spawn(driver);
            Ok(Self(connection))
        })
    }
}

impl ConnectionLike for Node {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.0.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.0.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }
}
