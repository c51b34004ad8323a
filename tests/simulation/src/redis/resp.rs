//! The protocol: <https://redis.io/docs/latest/develop/reference/protocol-spec/>, version 2.

/// A command with its arguments.
pub(crate) type Command = Vec<Vec<u8>>;

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
pub(crate) fn take_command(bytes: &mut Vec<u8>) -> Option<Command> {
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

/// Removes the first reply from the bytes, if it is complete. Returns whether it is an error, with its text.
pub(crate) fn take_reply(bytes: &mut Vec<u8>) -> Option<Result<(), String>> {
    let length = reply_length(bytes)?;
    let reply: Vec<_> = bytes.drain(..length).collect();
    let error = reply.strip_prefix(b"-").map(|text| String::from_utf8_lossy(text).trim_end().to_owned());
    Some(error.map_or(Ok(()), Err))
}

fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (length, number) = (line + 2, std::str::from_utf8(&bytes[1..line]).ok()?.parse::<usize>());
    match (bytes[0], number) {
        (b'$', Ok(count)) => Some(length + count + 2).filter(|length| *length <= bytes.len()),
        (b'*', Ok(count)) => (0..count).try_fold(length, |length, _| Some(length + reply_length(&bytes[length..])?)),
        // Nil, numbers and texts.
        _ => Some(length),
    }
}

/// A line such as `*3`. The client library sends nothing else.
fn number(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest[0], kind, "not a command");
    let number = std::str::from_utf8(&rest[1..end]).ok()?.parse().ok()?;
    *rest = &rest[end + 2..];
    Some(number)
}
