//! A client that writes down what a server replies, message by message.

use std::fmt::Write as _;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(super) struct Client {
    stream: Box<dyn Stream>,
    received: Vec<u8>,
}

impl Client {
    /// Begins a session of the user `app`.
    pub(super) async fn begin(stream: Box<dyn Stream>, database: &str) -> Self {
        let mut client = Self { stream, received: Vec::new() };
        let options = format!("user\0app\0database\0{database}\0\0");
        let mut startup = (u32::try_from(options.len()).unwrap() + 8).to_be_bytes().to_vec();
        startup.extend(196_608_u32.to_be_bytes());
        startup.extend(options.bytes());
        client.stream.write_all(&startup).await.unwrap();
        client.replies().await;
        client
    }

    /// Sends a query, or a prepared statement with parameters after ` @ `.
    pub(super) async fn send(&mut self, statement: &str) {
        let mut messages = Vec::new();
        let mut message = |kind: u8, body: &[u8]| {
            messages.push(kind);
            messages.extend((u32::try_from(body.len()).unwrap() + 4).to_be_bytes());
            messages.extend(body);
        };
        let Some((statement, parameters)) = statement.split_once(" @") else {
            message(b'Q', format!("{statement}\0").as_bytes());
            self.stream.write_all(&messages).await.unwrap();
            return;
        };
        let parameters: Vec<_> = parameters.split(',').map(str::trim).filter(|text| !text.is_empty()).collect();
        message(b'P', format!("\0{statement}\0\0\0").as_bytes());
        message(b'D', b"S\0");
        let mut bind = vec![0, 0, 0, 0];
        bind.extend(u16::try_from(parameters.len()).unwrap().to_be_bytes());
        for text in parameters {
            let length = if text == "NULL" { -1 } else { i32::try_from(text.len()).unwrap() };
            bind.extend(length.to_be_bytes());
            bind.extend(text.bytes().filter(|_| length >= 0));
        }
        // All columns in the binary format.
        bind.extend([0, 1, 0, 1]);
        message(b'B', &bind);
        message(b'E', &[0; 5]);
        message(b'S', &[]);
        self.stream.write_all(&messages).await.unwrap();
    }

    /// The replies to the last message.
    ///
    /// The description of the rows of a statement that fails is left out. A server sends it if the statement fails after
    /// its begin, and clients do not use it.
    pub(super) async fn replies(&mut self) -> String {
        let (mut replies, mut described) = (String::new(), None);
        loop {
            while let Some(length) = self.received.get(1..5) {
                let length = usize::try_from(u32::from_be_bytes(length.try_into().unwrap())).unwrap();
                if self.received.len() <= length {
                    break;
                }
                let message: Vec<u8> = self.received.drain(..=length).collect();
                match message[0] {
                    b'T' => described = Some(replies.len()),
                    b'C' => described = None,
                    b'E' => replies.truncate(described.unwrap_or(replies.len())),
                    _ => {}
                }
                write_down(&mut replies, message[0], &message[5..]);
                if message[0] == b'Z' {
                    return replies.trim_end().to_owned();
                }
            }
            if !matches!(self.stream.read_buf(&mut self.received).await, Ok(1..)) {
                return replies + "closed";
            }
        }
    }
}

fn write_down(replies: &mut String, kind: u8, body: &[u8]) {
    let texts = |body: &[u8]| -> Vec<String> {
        body.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    };
    match kind {
        b'C' => _ = write!(replies, "{}, ", texts(body)[0]),
        b'Z' => replies.push(char::from(body[0])),
        b'E' | b'N' => {
            let fields = texts(body);
            let field = |name: char| fields.iter().find_map(|field| field.strip_prefix(name)).unwrap_or("");
            let context = if field('W').is_empty() { "" } else { " in a context" };
            _ = write!(replies, "{} {}{}{context}, ", field('V'), field('C'), field('n'));
        }
        b'T' => {
            let mut rest = &body[2..];
            while let Some(end) = rest.iter().position(|byte| *byte == 0) {
                let oid = u32::from_be_bytes(rest[end + 7..end + 11].try_into().unwrap());
                _ = write!(replies, "{}:{oid} ", String::from_utf8_lossy(&rest[..end]));
                rest = &rest[end + 19..];
            }
        }
        b'D' => {
            let mut rest = &body[2..];
            replies.push('(');
            while let Some(length) = rest.get(..4) {
                let length = i32::from_be_bytes(length.try_into().unwrap());
                rest = &rest[4..];
                let (value, after) = rest.split_at(usize::try_from(length).unwrap_or(0));
                rest = after;
                match std::str::from_utf8(value) {
                    _ if length < 0 => replies.push_str("NULL|"),
                    Ok(text) if text.chars().all(|letter| !letter.is_control()) => _ = write!(replies, "{text}|"),
                    _ => _ = write!(replies, "{value:?}|"),
                }
            }
            replies.push_str(") ");
        }
        b't' => {
            let oids = body[2..].chunks(4).map(|oid| u32::from_be_bytes(oid.try_into().unwrap()));
            _ = write!(replies, "{:?} ", oids.collect::<Vec<_>>());
        }
        b'I' => replies.push_str("empty, "),
        // Parameters of the server, and replies without contents.
        _ => {}
    }
}
