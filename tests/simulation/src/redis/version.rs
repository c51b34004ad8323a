//! What differs between versions, as far as the scripts meet it.

use super::resp::Reply;
use crate::servers::Version;

impl Version {
    /// In INFO.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Six => "6.2.14",
            Self::Candidate => "6.255.254",
            Self::Eight => "8.2.0",
        }
    }

    /// `REDIS_VERSION_NUM` in scripts, which Redis 6 does not have.
    pub(super) fn number(self) -> Option<u32> {
        match self {
            Self::Six => None,
            Self::Candidate => Some(0x0006_fffe),
            Self::Eight => Some(0x0008_0200),
        }
    }

    /// The error of a script whose first line has these flags.
    pub(super) fn rejects_flags(self, flags: &[String]) -> Option<Reply> {
        match self {
            Self::Six => {
                let why = "user_script:1: unexpected symbol near '#'";
                Some(Reply::error(format!("ERR Error compiling script (new function): {why}")))
            }
            Self::Candidate if flags.iter().any(|flag| flag == "allow-cross-slot-keys") => {
                Some(Reply::error("ERR Unexpected flag in script shebang: allow-cross-slot-keys"))
            }
            Self::Candidate | Self::Eight => None,
        }
    }

    /// The error that a script gets for a command which Redis does not execute. Redis 6 adds the place, and has no
    /// code.
    pub(super) fn error_in_script(self, text: &str) -> Reply {
        let place = if self == Self::Six { "@user_script: 1: -" } else { "" };
        Reply::error(format!("{place}{text}"))
    }

    /// The reply to a script that raised this text.
    pub(super) fn raised(self, hash: &str, text: &str) -> Reply {
        match self {
            Self::Six => Reply::error(format!("ERR Error running script (call to f_{hash}): @user_script:1: {text}")),
            Self::Candidate | Self::Eight => Reply::error(format!("{text} script: on @user_script.")),
        }
    }
}
