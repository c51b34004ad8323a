//! An HTTP/1.1 client that takes little processor time, because it shares the machine with the server that it measures:
//! it writes prepared bytes and reads no more than the status and the length of a response.

use std::io::{self, ErrorKind};
use std::str;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection that is kept alive.
pub(crate) struct Connection {
    stream: TcpStream,
    response: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, response: Vec::new() })
    }

    /// Sends a request and reads its response. Returns the status and the body.
    pub(crate) async fn send(&mut self, request: &[u8]) -> io::Result<(u16, &[u8])> {
        self.stream.write_all(request).await?;
        self.response.clear();
        let (status, body, end) = loop {
            if self.stream.read_buf(&mut self.response).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let Some(head) = self.response.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
            let (status, length) = read_head(&self.response[..head]).ok_or(ErrorKind::InvalidData)?;
            let body = head + 4;
            if self.response.len() >= body + length {
                break (status, body, body + length);
            }
        };
        Ok((status, &self.response[body..end]))
    }
}

/// The status and the length of the body. `None` if there is no `Content-Length`.
fn read_head(head: &[u8]) -> Option<(u16, usize)> {
    let mut lines = str::from_utf8(head).ok()?.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        if name.eq_ignore_ascii_case("content-length") { value.parse().ok() } else { None }
    })?;
    Some((status, length))
}
