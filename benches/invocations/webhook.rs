//! A webhook that responds to every request after a fixed time.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::delay::DelayLine;

/// Its body has 24 bytes, as the result of `noop`.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\nthe order was dispatched";

pub(crate) struct Webhook {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
}

impl Webhook {
    pub(crate) fn start(delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let line = DelayLine::start(delay);
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (counted, line) = (Arc::clone(&counted), line.clone());
                // The client handles a broken connection.
                thread::spawn(move || serve(&connection, &line, &counted).ok());
            }
        });
        Ok(Self { address, calls })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn serve(connection: &TcpStream, line: &DelayLine, calls: &AtomicUsize) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut reader = BufReader::new(connection);
    let (mut text, mut length) = (String::new(), 0);
    loop {
        text.clear();
        if reader.read_line(&mut text)? == 0 {
            return Ok(());
        }
        if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if text.trim().is_empty() {
            io::copy(&mut reader.by_ref().take(length), &mut io::sink())?;
            calls.fetch_add(1, Ordering::SeqCst);
            line.send(connection, RESPONSE.to_vec());
        }
    }
}
