//! The protocol: <https://redis.io/docs/latest/develop/reference/protocol-spec/>, version 2.

/// A command with its arguments.
pub(super) type Command = Vec<Vec<u8>>;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Status(String),
    /// With its code as the first word.
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Self>),
}

impl Reply {
    pub(super) fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    pub(super) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub(super) fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(bytes.into())
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Status(text) => to.extend(format!("+{text}\r\n").bytes()),
            Self::Error(text) => to.extend(format!("-{text}\r\n").bytes()),
            Self::Integer(number) => to.extend(format!(":{number}\r\n").bytes()),
            Self::Bulk(bytes) => {
                to.extend(format!("${}\r\n", bytes.len()).bytes());
                to.extend(bytes);
                to.extend(b"\r\n");
            }
            Self::Nil => to.extend(b"$-1\r\n"),
            Self::Array(items) => {
                to.extend(format!("*{}\r\n", items.len()).bytes());
                for item in items {
                    item.encode(to);
                }
            }
        }
    }
}

/// Removes the first command from the bytes, if it is complete.
pub(super) fn take_command(bytes: &mut Vec<u8>) -> Option<Command> {
    let mut rest = &bytes[..];
    let count = number(&mut rest, b'*')?;
    let mut command = Vec::with_capacity(count);
    for _ in 0..count {
        let length = number(&mut rest, b'$')?;
        command.push(rest.get(..length)?.to_vec());
        rest = rest.get(length + 2..)?;
    }
    let taken = bytes.len() - rest.len();
    bytes.drain(..taken);
    Some(command)
}

/// A line such as `*3`. The client library sends nothing else.
fn number(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest[0], kind, "not a command");
    let number = std::str::from_utf8(&rest[1..end]).ok()?.parse().ok()?;
    *rest = &rest[end + 2..];
    Some(number)
}
