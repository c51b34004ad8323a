//! What belongs to one process of a server: its id, and the order in which SCAN returns its keys:
//! <https://redis.io/docs/latest/commands/scan/>.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::resp::Reply;

/// Keys that SCAN returns again after the step before, as it may while its table shrinks.
const REPEATED: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Process {
    /// How often the server has been started again.
    pub(super) restarts: u64,
    /// How often this process has been a replica, and became a primary again with another data set.
    pub(super) promotions: u64,
}

impl Process {
    /// The fields of INFO: <https://redis.io/docs/latest/commands/info/>.
    pub(super) fn info(&self, server: &str) -> String {
        let run = hash(&(server, self.restarts));
        let replaced = if self.promotions == 0 { 0 } else { hash(&(server, self.promotions)) };
        format!("run_id:{run:040x}\r\nmaster_replid2:{replaced:040x}\r\n")
    }

    /// Replies to SCAN with these arguments. `keys` are all keys.
    pub(super) fn scan(&self, server: &str, keys: Vec<Vec<u8>>, arguments: &[Vec<u8>]) -> Reply {
        let number = |text: &[u8]| str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
        let [cursor, first, pattern, second, count] = arguments else { return Reply::error("ERR syntax error") };
        let (Some(cursor), b"MATCH", b"COUNT", Some(count)) = (number(cursor), &**first, &**second, number(count))
        else {
            return Reply::error("ERR syntax error");
        };
        // Zero is the end.
        let place = |key: &[u8]| hash(&(server, self.restarts, self.promotions, key)) | 1;
        let mut places: Vec<_> = keys.into_iter().map(|key| (place(&key), key)).collect();
        places.sort_unstable();
        let next = places.partition_point(|(place, _)| *place < cursor);
        let end = places.len().min(next + usize::try_from(count).unwrap_or(usize::MAX));
        let page = &places[next.saturating_sub(REPEATED)..end];
        let matching = page.iter().filter(|(_, key)| matches(pattern, key)).map(|(_, key)| Reply::bulk(&**key));
        let next = places.get(end).map_or(0, |(place, _)| *place);
        Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(matching.collect())])
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether a pattern matches the text: <https://redis.io/docs/latest/commands/keys/>.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skipped| matches(rest, &text[skipped..])),
        ([b'?', rest @ ..], [_, others @ ..]) => matches(rest, others),
        ([b'[', rest @ ..], [byte, others @ ..]) => {
            let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
            rest[..end].contains(byte) && matches(&rest[rest.len().min(end + 1)..], others)
        }
        ([b'\\', escaped, rest @ ..] | [escaped, rest @ ..], [byte, others @ ..]) => {
            escaped == byte && matches(rest, others)
        }
        _ => false,
    }
}
