//! Connections to a server: those of the client library of PostgreSQL, and those of other programs.

use std::io;

use history::inbox::SECRET;
use idempotent_sqs_postgres::database::simulation::{Stream, dial_with};
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls};

use crate::network;

/// From now on, the connections of this process lead to hosts of the simulated network: to `server.client`.
pub fn dial_postgres() {
    dial_with(|config| {
        Box::pin(async move {
            let [Host::Tcp(host)] = config.get_hosts() else { return Err(io::ErrorKind::InvalidInput.into()) };
            Ok(Box::new(network::connect(host).await?) as Box<dyn Stream>)
        })
    });
}

/// Opens a session for a program on `host`, which is also the name of the server and of the user. `None` if the server does
/// not accept it now.
pub async fn session(host: &str) -> Option<Client> {
    let stream = network::connect(&network::address(host, host)).await.ok()?;
    let mut config = Config::new();
    config.user(host).password(SECRET).dbname("app");
    let (client, connection) = config.connect_raw(stream, NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}
