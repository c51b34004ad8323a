//! A sentinel: <https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/#sentinel-api>.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::resp::{Command, Reply, take_command};
use crate::network::{self, Accepted};

/// A sentinel that can be reached.
#[derive(Clone, Debug)]
pub struct Sentinel {
    /// The user and the password of each connection. `None` accepts all.
    pub login: Option<[String; 2]>,
    /// What it knows of each service.
    pub services: BTreeMap<String, Known>,
    /// What it knows of all services after the first request of a connection: then there was a failover.
    pub later: Option<Known>,
    /// Whether it replies.
    pub replies: bool,
}

/// What a sentinel knows of a service.
#[derive(Clone, Debug)]
pub struct Known {
    /// The number of the last failover.
    pub epoch: u64,
    pub primary: (String, u16),
}

impl Sentinel {
    /// Runs under this name until the simulation ends.
    pub fn start(self, name: &str) {
        let mut streams = network::listen(name);
        tokio::spawn(async move {
            while let Some(accepted) = streams.recv().await {
                tokio::spawn(self.clone().serve(accepted));
            }
        });
    }

    async fn serve(mut self, Accepted { mut stream, .. }: Accepted) {
        // It reads, and then executes, up to 16 KiB at a time (`PROTO_IOBUF_LEN`).
        let mut received = Vec::with_capacity(16 << 10);
        let (mut is_logged_in, mut is_asked) = (self.login.is_none(), false);
        while stream.read_buf(&mut received).await.is_ok_and(|count| count > 0) {
            while let Some(command) = take_command(&mut received) {
                is_asked |= command[0] == b"SENTINEL";
                let mut reply = Vec::new();
                self.execute(&command, &mut is_logged_in).encode(&mut reply);
                if self.replies && stream.write_all(&reply).await.is_err() {
                    return;
                }
            }
            if let Some(later) = self.later.take_if(|_| is_asked) {
                self.services.values_mut().for_each(|known| known.clone_from(&later));
            }
        }
    }

    fn execute(&self, command: &Command, is_logged_in: &mut bool) -> Reply {
        let texts: Vec<_> = command.iter().map(|text| String::from_utf8_lossy(text)).collect();
        match texts.iter().map(|text| &**text).collect::<Vec<_>>()[..] {
            ["AUTH", user, password] => {
                *is_logged_in = self.login.as_ref().is_some_and(|login| *login == [user, password]);
                if *is_logged_in { Reply::ok() } else { Reply::error("WRONGPASS invalid username-password pair.") }
            }
            ["CLIENT", ..] => Reply::ok(),
            _ if !*is_logged_in => Reply::error("NOAUTH Authentication required."),
            ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service] => match self.services.get(service) {
                Some(Known { primary: (host, port), .. }) => {
                    Reply::Array(vec![Reply::bulk(host.as_str()), Reply::bulk(port.to_string())])
                }
                None => Reply::Nil,
            },
            ["SENTINEL", "MASTER", service] => match self.services.get(service) {
                Some(Known { epoch, primary: (host, port) }) => {
                    let (epoch, port) = (epoch.to_string(), port.to_string());
                    let fields = ["name", service, "ip", host, "port", &port, "config-epoch", &epoch, "quorum", "2"];
                    Reply::Array(fields.map(Reply::bulk).into())
                }
                None => Reply::error("ERR No such master with that name"),
            },
            // As a server that does not know the database: a sentinel has none.
            _ => Reply::error(format!("ERR unknown command '{}'", texts[0])),
        }
    }
}
