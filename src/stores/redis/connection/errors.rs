//! Classifies errors of the client library.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Whether another connection would fail in the same way. A plain ERR does not count: before Redis 7 it also stands
/// for a READONLY error inside a script.
pub(super) fn repeats_on_any_connection(error: &RedisError) -> bool {
    lacks_permission(error) || is_wrong_type(error)
}

/// Whether the user may not execute the command. Each node of a cluster refuses it.
pub(super) fn lacks_permission(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// Whether the server rejected the script before it wrote anything. Such a rejection has a specific error code; a plain
/// ERR may come from the middle of a script, and an error without a code from the network.
pub(super) fn is_rejected_whole(error: &RedisError) -> bool {
    is_out_of_memory(error) || error.code().is_some_and(|code| code != "ERR")
}

fn is_out_of_memory(error: &RedisError) -> bool {
    // Before Redis 7, the first write of a script on a full server is rejected with a plain ERR.
    error.code() == Some("OOM") || error.detail().is_some_and(|detail| detail.contains("OOM command not allowed"))
}

/// Whether the server redirected the call to another node.
pub(super) fn is_redirection(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask))
}

/// Whether the error is a reply of the server, and not of the network or the client library.
pub(super) fn is_reply(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Whether the reply is about a passing state of the server or the cluster, such as full memory, and not about the
/// call.
pub(super) fn is_about_state(error: &RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
    let has_kind =
        matches!(error.kind(), ErrorKind::Server(BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain));
    let has_code = matches!(error.code(), Some("BUSY" | "MISCONF" | "NOREPLICAS"));
    // Inside a script that the node already runs, this is a plain ERR.
    let cluster_is_down = error.detail().is_some_and(|detail| detail.contains("cluster is down"));
    has_kind || has_code || cluster_is_down || is_out_of_memory(error)
}

/// Whether the server could not compile the script: before Redis 7 the line of flags is not valid Lua, and a release
/// candidate may not know a flag.
pub(super) fn is_not_compiled(error: &RedisError) -> bool {
    let is = |text| error.detail().is_some_and(|detail| detail.contains(text));
    is("compiling script") || is("Unexpected flag")
}

/// Whether the value under the key is not a string, and so not a record.
pub(in crate::stores::redis) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

pub(super) fn timed_out(what: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, what).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of this reply.
    fn error(reply: &str) -> RedisError {
        let reply = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        reply.extract_error().unwrap_err()
    }

    #[test]
    fn a_passing_state_of_the_server_is_told_from_a_refused_call() {
        for reply in [
            "LOADING Redis is loading the dataset in memory",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "READONLY You can't write against a read only replica.",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "BUSY Redis is busy running a script.",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "ERR Error running script: @user_script: OOM command not allowed when used memory > 'maxmemory'.",
            "ERR Error running script: @user_script: Can not execute a command while the cluster is down",
        ] {
            assert!(is_about_state(&error(reply)) && is_reply(&error(reply)), "{reply}");
        }
        for reply in ["ERR unknown command", "NOPERM no permissions", "WRONGTYPE not a string", "CROSSSLOT of 2 slots"]
        {
            assert!(!is_about_state(&error(reply)) && is_reply(&error(reply)), "{reply}");
        }
        assert!(!is_reply(&timed_out("no reply")));
    }
}
